//! Users who may command: root, the daemon's own user, and the admin group.

use std::ffi::CString;

use nix::unistd::{Gid, Group, Uid, User, geteuid, getgrouplist};

/// A peer of the control socket, as the kernel tells (`SO_PEERCRED`). Its process id is not used, because it may
/// be reused; a process that hands its connection to another lets that one command, as with any open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// User id.
    pub uid: u32,
    /// Primary group id at the moment of connecting.
    pub gid: u32,
}

/// Users who may command besides root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admins {
    own: Uid,
    group: Option<Gid>,
}

impl Admins {
    /// The daemon's user and a group by its name; an empty name admits nobody else, and neither does a group that
    /// does not exist, which is warned of.
    #[must_use]
    pub fn new(group: &str) -> Self {
        let named = match group {
            "" => Ok(None),
            name => Group::from_name(name),
        };
        let gid = match named {
            Ok(found) => found.map(|found| found.gid),
            Err(error) => {
                log::warn!("group {group} can't be looked up: {error}");
                None
            }
        };
        if gid.is_none() && !group.is_empty() {
            log::warn!(
                "only root may give commands: there is no group {group}, which [control] admin_group names"
            );
        }
        Self {
            own: geteuid(),
            group: gid,
        }
    }

    /// Whether a caller may command. Looks the caller's groups up where it must, which may ask a
    /// directory service: on a thread that may wait.
    pub async fn admit(self, caller: Caller) -> bool {
        match self.admits(caller, &[]) {
            true => true,
            false if self.group.is_none() => false,
            false => {
                let groups = tokio::task::spawn_blocking(move || groups_of(caller));
                self.admits(caller, &groups.await.unwrap_or_default())
            }
        }
    }

    /// Whether a caller is root or the daemon's own user, which needs no lookup.
    pub fn is_own(self, caller: Caller) -> bool {
        let uid = Uid::from_raw(caller.uid);
        uid.is_root() || uid == self.own
    }

    /// Whether a caller with these supplementary groups may command.
    fn admits(self, caller: Caller, groups: &[Gid]) -> bool {
        let uid = Uid::from_raw(caller.uid);
        let mut member_of = groups.iter().copied().chain([Gid::from_raw(caller.gid)]);
        uid.is_root()
            || uid == self.own
            || self.group.is_some_and(|gid| member_of.any(|g| g == gid))
    }
}

/// All groups of the caller's user; none if the user is not known.
fn groups_of(caller: Caller) -> Vec<Gid> {
    let user = User::from_uid(Uid::from_raw(caller.uid)).ok().flatten();
    user.and_then(|user| CString::new(user.name).ok())
        .and_then(|name| getgrouplist(&name, Gid::from_raw(caller.gid)).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admins(group: Option<u32>) -> Admins {
        Admins {
            own: Uid::from_raw(990),
            group: group.map(Gid::from_raw),
        }
    }

    fn caller(uid: u32, gid: u32) -> Caller {
        Caller { uid, gid }
    }

    #[test]
    fn root_the_daemons_user_and_the_group_may_command() {
        let group = admins(Some(500));
        assert!(group.admits(caller(0, 0), &[]));
        assert!(group.admits(caller(990, 990), &[]));
        assert!(group.admits(caller(1000, 500), &[]));
        assert!(group.admits(caller(1000, 1000), &[Gid::from_raw(4), Gid::from_raw(500)]));
        assert!(!group.admits(caller(1000, 1000), &[Gid::from_raw(4)]));
        assert!(!group.admits(caller(500, 1000), &[]));
    }

    #[test]
    fn without_a_group_no_group_may_command() {
        // Being in group 0 is not being root.
        for gid in [0, 500] {
            assert!(!admins(None).admits(caller(1000, gid), &[Gid::from_raw(gid)]));
        }
        assert_eq!(Admins::new("").group, None);
        assert_eq!(Admins::new("no-such-group-here").group, None);
    }

    #[test]
    fn a_users_groups_are_looked_up() {
        let root = groups_of(caller(0, 0));
        assert!(root.contains(&Gid::from_raw(0)), "{root:?}");
        assert_eq!(groups_of(caller(u32::MAX - 7, 3)), []);
    }
}
