//! Where Prometheus asks.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::ACCEPT;
use hyper::{Method, Request, StatusCode};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::answers::Answers;
use crate::hub::Shared;
use crate::metrics::Format;
use crate::seats::Seats;
use crate::server::{self, Answer};
use crate::unread;

/// Connections at a time.
const SEATS: usize = 32;

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
    let seats = Seats::new(SEATS);
    loop {
        let stream = server::accept(|| listener.accept()).await;
        let Some((seat, leave)) = seats.take(stream.peer_addr().ok().map(|it| it.ip()), false)
        else {
            continue;
        };
        let Ok(end) = stream.as_fd().try_clone_to_owned() else {
            continue;
        };
        unread::bound(&stream, server::SEND_BUFFER);
        let at_last = Instant::now() + server::PATIENCE;
        let hub = hub.clone();
        let waiting = answers.connection(None);
        tokio::task::spawn_local(async move {
            let serving = server::http(stream, server::PATIENCE, |request| {
                seat.asks();
                std::future::ready(waiting.admit(respond(&hub, &request), &hub))
            });
            leave.or(serving).await;
            unread::close_tcp(end, at_last).await;
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
