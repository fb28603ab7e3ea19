//! Where Prometheus asks.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::ACCEPT;
use hyper::{Method, Request, StatusCode};
use tokio::net::TcpListener;

use crate::answers::Answers;
use crate::hub::Shared;
use crate::metrics::Format;
use crate::server::{self, Answer};

/// Connections at a time; others wait.
const PLACES: usize = 8;

/// An address that somebody else has is tried again after so long.
const AGAIN: Duration = Duration::from_secs(10);

const TEXT: &str = "text/plain; charset=utf-8";

/// Any user may have the port already. Nothing that litd does needs metrics, so that is told, and keeps litd
/// from nothing.
pub async fn listen(address: SocketAddr) -> Option<TcpListener> {
    match bind(address).await {
        Ok(listener) => Some(listener),
        Err(cause) => {
            log::warn!(
                "[metrics] listen = \"{address}\": {cause}: there are no metrics until that address can be \
                 had, which is tried every {} s; `ss -ltnp` tells who has it",
                AGAIN.as_secs()
            );
            None
        }
    }
}

/// Waits until the address can be had.
pub async fn listen_later(address: SocketAddr) -> TcpListener {
    loop {
        tokio::time::sleep(AGAIN).await;
        if let Ok(listener) = bind(address).await {
            return listener;
        }
    }
}

async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address).await?;
    log::info!("metrics on http://{}/metrics", listener.local_addr()?);
    Ok(listener)
}

/// Answers for ever.
pub async fn serve(listener: TcpListener, answers: Answers, hub: Shared) {
    let places = server::Places::new(PLACES);
    loop {
        let place = places.take().await;
        let stream = server::accept(|| listener.accept()).await;
        let hub = hub.clone();
        let waiting = answers.connection(None);
        tokio::task::spawn_local(async move {
            server::http(stream, server::PATIENCE, |request| {
                std::future::ready(waiting.admit(respond(&hub, &request), &hub))
            })
            .await;
            drop(place);
        });
    }
}

fn respond(hub: &Shared, request: &Request<Incoming>) -> Answer {
    if request.uri().path() != "/metrics" {
        return server::answer(StatusCode::NOT_FOUND, TEXT, "metrics are at /metrics\n");
    }
    if request.method() != Method::GET {
        return server::answer(
            StatusCode::METHOD_NOT_ALLOWED,
            TEXT,
            "only GET is possible\n",
        );
    }
    let accept = request.headers().get(ACCEPT);
    let accept = accept.and_then(|value| value.to_str().ok());
    let format = Format::accepted(accept.unwrap_or_default());
    let status = hub.borrow().status();
    server::answer(StatusCode::OK, format.content_type(), format.text(&status))
}
