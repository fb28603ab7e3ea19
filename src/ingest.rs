//! Where hooks connect.

use litd_core::Peer;
use tokio::net::{UnixListener, UnixStream};

use crate::home::Homes;
use crate::hub::Shared;
use crate::{server, session};

/// Connections beyond those that the core admits: it takes a moment to refuse one, and wants to
/// say why.
const SPARE: usize = 8;

/// Accepts hooks for ever. `sessions` is how many the core admits; `longest` is the longest frame
/// in bytes. At most a few more than `sessions` are served at a time, the others wait in the
/// socket's queue.
pub async fn serve(
    listener: UnixListener,
    homes: Homes,
    sessions: usize,
    longest: usize,
    hub: Shared,
) {
    let places = server::Places::new(sessions.saturating_add(SPARE));
    loop {
        let place = places.take().await;
        let stream = server::accept(|| listener.accept()).await;
        let Some(peer) = peer(&stream) else { continue };
        let home = homes.of(&stream, peer.pid);
        let hub = hub.clone();
        tokio::task::spawn_local(async move {
            session::serve(stream, (peer, home), longest, hub).await;
            drop(place);
        });
    }
}

/// Who connected. A peer without a process id is in no namespace of ours and can hold no GPU.
fn peer(stream: &UnixStream) -> Option<Peer> {
    let credentials = stream.peer_cred().ok()?;
    let pid = credentials.pid().and_then(|pid| u32::try_from(pid).ok());
    Some(Peer {
        pid: pid.unwrap_or(0),
        uid: credentials.uid(),
    })
}
