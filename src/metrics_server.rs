//! The HTTP server for Prometheus.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
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
use crate::seats::{Ended, Seats};
use crate::server::{self, Answer};
use crate::unread;

/// Connections at a time.
const SEATS: usize = 32;

/// An address that another process has is tried again after so long.
const AGAIN: Duration = Duration::from_secs(10);

const TEXT: &str = "text/plain; charset=utf-8";

/// Any user may have the port already. litd works without metrics, so this is logged and litd goes on.
pub async fn listen(address: SocketAddr) -> Option<TcpListener> {
    match bind(address).await {
        Ok(listener) => Some(listener),
        Err(cause) => {
            log::warn!(
                "[metrics] listen = \"{address}\": {cause}: litd serves no metrics until that address is free, and \
                 tries again every {} s; `ss -ltnp` names the process that has it",
                AGAIN.as_secs()
            );
            None
        }
    }
}

/// Waits until the address is free, and reports that it is not: the process that has it may serve anything there.
pub async fn listen_later(address: SocketAddr, hub: &Shared) -> TcpListener {
    let named = address.to_string();
    let mut at_first = true;
    loop {
        match bind(address).await {
            Ok(listener) => {
                if !at_first {
                    hub.borrow_mut().metrics_again(&named);
                }
                return listener;
            }
            Err(why) => hub.borrow_mut().metrics_elsewhere(&named, at_first, &why),
        }
        at_first = false;
        tokio::time::sleep(AGAIN).await;
    }
}

async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address).await?;
    log::info!("metrics on http://{}/metrics", listener.local_addr()?);
    Ok(listener)
}

/// Serves for ever.
pub async fn serve(listener: TcpListener, answers: Answers, hub: Shared) {
    let seats = Seats::new(SEATS);
    loop {
        // However many connect here, they do not hold up those who connect to the control socket.
        tokio::task::yield_now().await;
        let stream = server::accept(|| listener.accept()).await;
        let client = stream.peer_addr().ok().map(|it| client(it.ip()));
        let Some((seat, leave)) = seats.take(client, false) else {
            hub.borrow_mut().crowded_out(None);
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
                // The answer is ready at once, and a client that does not read it may be disconnected.
                seat.is_answered();
                std::future::ready(waiting.admit(respond(&hub, &request), &hub))
            });
            let at_last = match leave.or(serving).await {
                Ended::Served => at_last,
                Ended::Left => Instant::now(),
            };
            drop(seat);
            unread::close_tcp(end, at_last).await;
        });
    }
}

/// The client with whose connections this one is counted: any local user has all of 127.0.0.0/8.
fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        address if address.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        address => address,
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
