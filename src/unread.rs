//! Data that litd has sent and peers have not read.
//!
//! The kernel keeps it for the reader and counts it as memory of litd's control group for as long as the reader keeps
//! his end open, also after litd has closed its own. Unbounded, it could get litd killed. So litd keeps its ends of
//! such connections here until the other end is closed or has read everything, and does not serve a peer that leaves
//! too much unread. If others have filled the table, a peer that has left nothing unread still gets the answers that
//! it asks for, until twice the table's bytes are unread. A hook gets no message at all then until it is let in as a
//! rank, so that it leaves nothing unread either.

use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use litd_core::{Crowd, Table};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::time::{Instant, sleep};

use crate::passed::OurEnd;

/// The bytes that an end counts with besides those that the kernel reports: its descriptor, and the kernel's
/// records.
const END: usize = 3 * 1024;

/// The divisor for the part of the table that one crowd has.
const OF_A_USER: usize = 16;

/// With so many ends hooks are refused without a reason: each end is a descriptor, and with those of all hooks
/// they are fewer than the 1,024 that a process usually may have.
const ENDS: usize = 256;

/// The multiple of the table that ranks and clients of the control socket may leave unread, if very many of them
/// read nothing.
const AT_MOST: usize = 2;

/// Ends are checked again when there are twice as many as after the last check, and at least so many.
const FEW: usize = 16;

/// How often TCP's ends are checked.
const LOOK: Duration = Duration::from_millis(10);

/// The ends of closed connections whose peers have not read everything yet; one table for all sockets.
#[derive(Debug, Clone, Default)]
pub struct Unread(Rc<RefCell<Ends>>);

#[derive(Debug, Default)]
struct Ends {
    ends: Vec<End>,
    /// The number of ends at which they are checked again.
    look_at: usize,
}

#[derive(Debug)]
struct End {
    crowd: Crowd,
    end: OurEnd,
    bytes: usize,
}

/// The messages that a crowd may get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// All messages.
    Words,
    /// Answers that a rank or an administrator has asked for; other peers get nothing.
    Answers,
    /// No messages: the crowd has left too much unread itself, or all others together have.
    Nothing,
}

impl Unread {
    /// The messages that this crowd may get. Half of the table is for crowds that have left nothing unread.
    #[must_use]
    pub fn room(&self, crowd: &Crowd) -> Room {
        let mut ends = self.0.borrow_mut();
        match ends.room(crowd) {
            Room::Words => Room::Words,
            Room::Answers | Room::Nothing => {
                ends.look();
                ends.room(crowd)
            }
        }
    }

    /// Closes a connection to a process of this crowd, of which `end` is litd's end.
    pub fn close(&self, crowd: Crowd, end: OurEnd) {
        end.shut_down();
        let mut ends = self.0.borrow_mut();
        ends.ends.extend(End::of(crowd, end));
        if ends.ends.len() >= ends.look_at.max(FEW) {
            ends.look();
        }
    }
}

impl Ends {
    fn room(&self, crowd: &Crowd) -> Room {
        let all: usize = self.ends.iter().map(|end| end.bytes).sum();
        let own = self.ends.iter().filter(|end| end.crowd == *crowd);
        let own: Vec<usize> = own.map(|end| end.bytes).collect();
        let most = Table::Unread.bytes();
        let has_left = !own.is_empty();
        let share = if has_left { 2 } else { 1 };
        let is_modest =
            own.len() < ENDS / OF_A_USER && own.iter().sum::<usize>() < most / OF_A_USER;
        if is_modest && self.ends.len() < ENDS / share && all < most / share {
            Room::Words
        } else if !has_left && all < AT_MOST * most {
            Room::Answers
        } else {
            Room::Nothing
        }
    }

    /// Forgets the ends that have nothing unread any more.
    fn look(&mut self) {
        let ends = self.ends.drain(..);
        self.ends = ends.filter_map(|it| End::of(it.crowd, it.end)).collect();
        self.look_at = 2 * self.ends.len();
    }
}

impl End {
    /// `None` if the peer has read everything or is gone: the kernel drops unread data when the peer closes his
    /// end.
    fn of(crowd: Crowd, end: OurEnd) -> Option<Self> {
        let unread = unsent(end.end().ok()?).ok().filter(|&unread| unread > 0)?;
        let bytes = END + unread;
        Some(Self { crowd, end, bytes })
    }
}

/// Ends a TCP connection once its peer has taken everything, or at this time without that: the rest is dropped
/// then, and so is the connection.
pub async fn close_tcp(end: OwnedFd, at_last: Instant) {
    while unsent(end.as_fd()).is_ok_and(|unsent| unsent > 0) {
        if Instant::now() >= at_last {
            let at_once = nix::libc::linger {
                l_onoff: 1,
                l_linger: 0,
            };
            // The connection ends in any case, a while later with data unsent.
            let _ = setsockopt(&end, sockopt::Linger, &at_once);
            return;
        }
        sleep(LOOK).await;
    }
}

/// Bounds the bytes that the kernel keeps of data that litd sends on a connection and the peer has not taken; the
/// kernel doubles the bound for its own records.
pub fn bound(socket: &impl AsFd, bytes: usize) {
    if let Err(error) = setsockopt(socket, sockopt::SndBuf, &bytes) {
        log::debug!("the send buffer of a connection can't be bounded: {error}");
    }
}

/// The bytes that the kernel holds: of a unix socket those that the peer has not read, with the kernel's records;
/// of TCP those that the peer has not acknowledged.
#[allow(unsafe_code)]
fn unsent(end: BorrowedFd<'_>) -> nix::Result<usize> {
    nix::ioctl_read_bad!(siocoutq, nix::libc::TIOCOUTQ, nix::libc::c_int);
    let mut bytes = 0;
    // SAFETY: the descriptor is open for as long as it is borrowed, and the kernel writes one int there.
    unsafe { siocoutq(end.as_raw_fd(), &raw mut bytes) }?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use litd_core::Home;

    use super::*;

    fn hears(unread: &Unread, crowd: &Crowd) -> bool {
        unread.room(crowd) == Room::Words
    }

    /// Sends data that a user does not read; returns his end.
    fn tell(unread: &Unread, crowd: impl Into<Crowd>) -> UnixStream {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        bound(&ours, 4096);
        ours.write_all(b"no").unwrap();
        unread.close(crowd.into(), OurEnd::plain(ours.into()));
        theirs
    }

    #[test]
    fn whoever_leaves_too_much_unread_has_to_read_it_first() {
        let unread = Unread::default();
        let mut left = Vec::new();
        while hears(&unread, &Crowd::from(1000)) {
            left.push(tell(&unread, 1000));
            assert!(left.len() < 1000, "no bound");
        }
        assert!(left.len() > 10, "{}", left.len());
        assert!(hears(&unread, &Crowd::from(1001)));
        // Data that was read, or that nobody can read any more, frees its room.
        let mut text = String::new();
        left[0].read_to_string(&mut text).unwrap();
        assert_eq!(text, "no");
        assert!(hears(&unread, &Crowd::from(1000)));
        drop(left);
        assert!(hears(&unread, &Crowd::from(1000)));
    }

    #[test]
    fn what_one_pod_does_not_read_keeps_no_other_of_its_user_out() {
        let pod = |uid: &str| {
            let path = format!("/kubepods/pod{uid}-aaaa-4bbb-8ccc-0123456789ab/made-up");
            Home::of(&format!("0::{path}\n")).unwrap()
        };
        let of = |uid: &str| Crowd::of(0, Some(&pod(uid)));
        let unread = Unread::default();
        let mut left = Vec::new();
        while hears(&unread, &of("00000001")) {
            left.push(tell(&unread, of("00000001")));
        }
        assert!(!left.is_empty() && hears(&unread, &of("00000002")));
        assert!(hears(&unread, &Crowd::of(0, None)));
    }

    #[test]
    fn many_users_together_leave_no_more_than_the_table_has() {
        let unread = Unread::default();
        let mut left = Vec::new();
        for uid in 0..10_000 {
            if hears(&unread, &Crowd::from(uid)) {
                left.push(tell(&unread, uid));
            }
        }
        let all: usize = unread.0.borrow().ends.iter().map(|it| it.bytes).sum();
        assert!(all < Table::Unread.bytes() + 64 * 1024, "{all}");
        // Half of it is for those who have left nothing unread.
        let unread = Unread::default();
        let greedy: Vec<_> = (0..100)
            .flat_map(|uid| {
                let unread = &unread;
                let most = std::iter::from_fn(move || {
                    hears(unread, &Crowd::from(uid)).then(|| tell(unread, uid))
                });
                most.collect::<Vec<_>>()
            })
            .collect();
        assert!(!greedy.is_empty() && hears(&unread, &Crowd::from(20_000)));
    }

    #[test]
    fn ever_so_many_users_keep_nobody_out_who_has_left_nothing() {
        let unread = Unread::default();
        let left: Vec<_> = (0..2 * ENDS as u32).map(|uid| tell(&unread, uid)).collect();
        // An end of a peer that is neither rank nor administrator would be one too many.
        assert_eq!(unread.room(&Crowd::from(20_000)), Room::Answers);
        assert_eq!(unread.room(&Crowd::from(0)), Room::Nothing);
        drop(left);
        assert_eq!(unread.room(&Crowd::from(20_000)), Room::Words);
    }

    #[test]
    fn who_reads_everything_leaves_nothing_behind() {
        let unread = Unread::default();
        for _ in 0..1000 {
            assert!(hears(&unread, &Crowd::from(1000)));
            let mut text = String::new();
            tell(&unread, 1000).read_to_string(&mut text).unwrap();
        }
        assert!(unread.0.borrow().ends.len() <= FEW);
    }
}
