//! `/metrics`, `/healthz` and `/readyz`: on loopback as they are, elsewhere with TLS, and the metrics then
//! only for whom the API server lets.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_openssl::SslStream;
use hyper_util::rt::TokioIo;
use openssl::error::ErrorStack;
use openssl::ssl::{Ssl, SslAcceptor, SslFiletype, SslMethod};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::metrics::Metrics;
use super::readers::Readers;
use crate::error::Fault;

/// Connections at a time; more wait. One or two readers are usual.
const CONNECTIONS_MAX: usize = 16;
/// A connection that is longer is ended: who reads comes again.
const CONNECTION_MAX: Duration = Duration::from_secs(60);

/// Where is listened, and for whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listening {
    /// The address; port 0 takes a free one.
    pub address: SocketAddr,
    /// With TLS, and asking who reads.
    pub tls: Option<Tls>,
}

/// The server's certificate. Both files are read for each connection: they are renewed in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The certificate and those above it, PEM.
    pub certificate: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
}

/// What answers.
#[derive(Debug)]
struct Answering {
    metrics: Arc<Metrics>,
    /// None: nobody is asked who they are.
    readers: Option<Readers>,
}

/// Answers as long as the program runs; gives the address that was taken.
///
/// # Errors
///
/// The address is not loopback and there is no TLS, it is taken, or the certificate cannot be used.
pub(super) async fn listen(
    listening: &Listening,
    metrics: Arc<Metrics>,
    client: kube::Client,
) -> Result<SocketAddr> {
    let Listening { address, tls } = listening.clone();
    if !address.ip().is_loopback() && tls.is_none() {
        return Err(Fault::usage(format!("--listen={address}: not a loopback address"))
            .why("metrics are served there without asking who reads them")
            .next("use 127.0.0.1:8797, or give --metrics-tls-cert and --metrics-tls-key")
            .into());
    }
    if let Some(tls) = &tls {
        acceptor(tls).map_err(|error| {
            Fault::failed(format!("--metrics-tls-cert={}: cannot be used", tls.certificate.display()))
                .why(format!("with {}: {error}", tls.key.display()))
                .next("give a certificate and its key, PEM")
        })?;
    }
    let listener = TcpListener::bind(address).await.map_err(|error| {
        Fault::failed(format!("--listen={address}: cannot listen there"))
            .why(error.to_string())
            .next("give another port; port 0 takes a free one")
    })?;
    let taken = listener.local_addr()?;
    let answering = Arc::new(Answering { metrics, readers: tls.is_some().then(|| Readers::new(client)) });
    tokio::spawn(accept(listener, tls, answering));
    Ok(taken)
}

async fn accept(listener: TcpListener, tls: Option<Tls>, answering: Arc<Answering>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        // A connection that cannot be taken now is no reason to end.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_secs(1)).await;
            continue;
        };
        let (tls, answering) = (tls.clone(), Arc::clone(&answering));
        tokio::spawn(async move {
            let _place = place;
            let _ = tokio::time::timeout(CONNECTION_MAX, connection(stream, tls, answering)).await;
        });
    }
}

async fn connection(stream: TcpStream, tls: Option<Tls>, answering: Arc<Answering>) {
    let stream = TokioIo::new(stream);
    let Some(tls) = tls else { return serve(stream, answering).await };
    let secured = acceptor(&tls)
        .and_then(|acceptor| Ssl::new(acceptor.context()))
        .and_then(|ssl| SslStream::new(ssl, stream));
    match secured {
        Ok(mut stream) => {
            if std::future::poll_fn(|context| Pin::new(&mut stream).poll_accept(context)).await.is_ok() {
                serve(stream, answering).await;
            }
        }
        Err(error) => tracing::warn!("the certificate of the metrics cannot be used: {error}"),
    }
}

fn acceptor(tls: &Tls) -> Result<SslAcceptor, ErrorStack> {
    let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server())?;
    acceptor.set_certificate_chain_file(&tls.certificate)?;
    acceptor.set_private_key_file(&tls.key, SslFiletype::PEM)?;
    acceptor.check_private_key()?;
    Ok(acceptor.build())
}

async fn serve(stream: impl Read + Write + Unpin, answering: Arc<Answering>) {
    let service = service_fn(move |request| answer(request, Arc::clone(&answering)));
    // What a reader does wrong is theirs.
    let _ = http1::Builder::new().serve_connection(stream, service).await;
}

async fn answer(
    request: Request<Incoming>,
    answering: Arc<Answering>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let metrics = &answering.metrics;
    let (status, text) = match request.uri().path() {
        "/metrics" => {
            let status = match &answering.readers {
                Some(readers) => readers.may_read(request.headers()).await,
                None => StatusCode::OK,
            };
            let refusal = || format!("{}\n", status.canonical_reason().unwrap_or("refused"));
            (status, if status == StatusCode::OK { metrics.page() } else { refusal() })
        }
        "/healthz" => (StatusCode::OK, "ok\n".to_owned()),
        "/readyz" if metrics.is_ready() => (StatusCode::OK, "ok\n".to_owned()),
        "/readyz" => (StatusCode::SERVICE_UNAVAILABLE, "Node and host have not been seen yet\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "metrics, healthz and readyz are here\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    Ok(response)
}
