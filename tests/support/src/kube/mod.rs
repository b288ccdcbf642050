//! A real Kubernetes control plane on the loopback: API server with RBAC and admission, etcd, and the real controllers and
//! scheduler. Only the kubelet is played, by [`Kubelet`].
//!
//! `tests/cluster/kube.sh` builds the program, once. A control plane costs some 650 MB and five seconds: tests share
//! [`ControlPlane::shared`] and keep to nodes and namespaces of their own; one that stops the API server starts its own.

mod api;
mod audit;
mod certificates;
mod kubelet;
mod node;
mod plane;
mod start;

pub use api::{Answer, Api};
pub use audit::{Audit, Request, table};
pub use kubelet::{HANGS, Kubelet};
pub use node::{Node, account_token, daemon_set_token, node_token, pod_token};
pub use plane::ControlPlane;
