//! `/metrics`, `/healthz` and `/readyz`, on loopback only: what reads them from outside goes through
//! something that asks who it is.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::metrics::Metrics;
use crate::error::Fault;

/// Answers on `address` as long as the program runs.
///
/// # Errors
///
/// The address is not loopback, or is taken.
pub(super) async fn listen(address: SocketAddr, metrics: Arc<Metrics>) -> Result<SocketAddr> {
    if !address.ip().is_loopback() {
        return Err(Fault::usage(format!("--listen={address}: not a loopback address"))
            .why("metrics are served without asking who reads them")
            .next("use 127.0.0.1:8797, and put a proxy that asks in front of it")
            .into());
    }
    let listener = TcpListener::bind(address).await.map_err(|error| {
        Fault::failed(format!("--listen={address}: cannot listen there"))
            .why(error.to_string())
            .next("give another port; port 0 takes a free one")
    })?;
    let taken = listener.local_addr()?;
    tokio::spawn(async move {
        loop {
            // A connection that cannot be taken now is no reason to end.
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                continue;
            };
            let metrics = Arc::clone(&metrics);
            tokio::spawn(async move {
                let service = service_fn(move |request| answer(request, Arc::clone(&metrics)));
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    Ok(taken)
}

async fn answer(
    request: Request<Incoming>,
    metrics: Arc<Metrics>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, text) = match request.uri().path() {
        "/metrics" => (StatusCode::OK, metrics.page()),
        "/healthz" => (StatusCode::OK, "ok\n".to_owned()),
        "/readyz" if metrics.is_ready() => (StatusCode::OK, "ok\n".to_owned()),
        "/readyz" => (StatusCode::SERVICE_UNAVAILABLE, "Node and host have not been seen yet\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "metrics, healthz and readyz are here\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    Ok(response)
}
