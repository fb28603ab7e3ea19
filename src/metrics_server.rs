//! Where Prometheus asks.

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

const TEXT: &str = "text/plain; charset=utf-8";

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
