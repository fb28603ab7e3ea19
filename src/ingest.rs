//! The socket for hooks.

use std::rc::Rc;
use std::time::Duration;

use litd_core::Peer;
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::hub::Shared;
use crate::listening::Listening;
use crate::passed::Connection;
use crate::process::Processes;
use crate::server;
use crate::session::{self, Caller};
use crate::unread::{self, Room, Unread};

/// Connections beyond those that the core admits: refusing one with a reason takes a moment.
const SPARE: usize = 8;

/// The send buffer per hook, of which the kernel keeps twice as much; directives are some tens of bytes, which
/// take some hundreds in the kernel.
const SEND_BUFFER: usize = 8 * 1024;

/// On kernels without handles of peers, how often to check whether connections wait. A process that began less
/// than this before it connects is asked to connect again.
const LOOK: Duration = Duration::from_secs(1);

/// Accepts hooks for ever. `sessions` is how many the core admits; `longest` is the longest frame
/// in bytes. At most a few more than `sessions` are served at a time, the others wait in the
/// socket's queue.
pub async fn serve(
    listening: Rc<Listening>,
    processes: Processes,
    sessions: usize,
    longest: usize,
    unread: Unread,
    hub: Shared,
) {
    let places = server::Places::new(sessions.saturating_add(SPARE));
    loop {
        let place = places.take().await;
        let connection = next(&listening, &processes).await;
        let Ok(stream) = connection.stream() else {
            continue;
        };
        let Some(peer) = peer(stream) else { continue };
        if !hub.borrow_mut().may_knock(peer) {
            continue;
        }
        let process = processes.of(stream, peer.pid);
        let home = processes.home(&process, peer.pid);
        let crowd = hub.borrow().crowd(peer.uid, home.as_ref());
        let room = unread.room(&crowd);
        if room != Room::Words {
            hub.borrow_mut().unanswered(Some(peer.uid), home.as_ref());
        }
        if room == Room::Nothing {
            continue;
        }
        unread::bound(stream, SEND_BUFFER);
        let (hub, unread) = (hub.clone(), unread.clone());
        let caller = Caller {
            peer,
            process,
            home,
            is_refused_in_words: room == Room::Words,
        };
        tokio::task::spawn_local(async move {
            if let Some(end) = session::serve(connection, caller, longest, hub).await {
                unread.close(crowd, end);
            }
            drop(place);
        });
        // The hook's first frame is read before the next connection is accepted.
        tokio::task::yield_now().await;
    }
}

/// The next connection.
async fn next(listening: &Listening, processes: &Processes) -> Connection {
    processes.accepts();
    let mut accepted = std::pin::pin!(listening.accept());
    while processes.wants_looks() {
        processes.look(&*listening.listener());
        if let Ok(connection) = timeout(LOOK, &mut accepted).await {
            return connection;
        }
    }
    accepted.await
}

/// The process at the other end. A peer without a process id is in a foreign namespace and can hold no GPU.
fn peer(stream: &UnixStream) -> Option<Peer> {
    let credentials = stream.peer_cred().ok()?;
    let pid = credentials.pid().and_then(|pid| u32::try_from(pid).ok());
    Some(Peer {
        pid: pid.unwrap_or(0),
        uid: credentials.uid(),
    })
}
