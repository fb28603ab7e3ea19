//! Owners of subordinate ids: most distributions give each user 65,536 of them (subuid(5)), and he may run
//! processes as any of those (newuidmap(1)). Counts of users count him once.

use std::collections::{BTreeMap, BTreeSet};

/// The first subordinate id, unless configured otherwise (`SUB_UID_MIN` of login.defs).
const FIRST: u32 = 100_000;

/// A line of the file: a range of ids of one user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    first: u32,
    last: u32,
    owner: u32,
}

/// The users of a node, and their subordinate ids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owners {
    /// In the order of their first ids.
    parts: Vec<Part>,
    /// Users with an entry of their own, who may be within a range by mistake.
    users: BTreeSet<u32>,
}

impl Owners {
    /// Reads `/etc/subuid` and `/etc/passwd`; malformed lines are left out. A user whom the latter does not name
    /// is known by his first subordinate id. So is root, whose containers are not root.
    #[must_use]
    pub fn of(subuid: &str, passwd: &str) -> Self {
        let mut named = BTreeMap::new();
        for line in passwd.lines() {
            let mut fields = line.split(':');
            let (name, uid) = (fields.next(), fields.nth(1));
            if let (Some(name), Some(Ok(uid))) = (name, uid.map(str::parse::<u32>)) {
                named.insert(name, uid);
            }
        }
        let mut unnamed = BTreeMap::new();
        let mut parts = Vec::new();
        for line in subuid.lines() {
            let mut fields = line.split(':');
            let (Some(name), Some(Ok(first)), Some(Ok(count))) = (
                fields.next(),
                fields.next().map(str::parse::<u32>),
                fields.next().map(|it| it.trim().parse::<u32>()),
            ) else {
                continue;
            };
            let Some(more) = count.checked_sub(1) else {
                continue;
            };
            let uid = named.get(name).copied().or_else(|| name.parse().ok());
            let owner = match uid {
                Some(0) | None => *unnamed.entry(name).or_insert(first),
                Some(uid) => uid,
            };
            let last = first.saturating_add(more);
            parts.push(Part { first, last, owner });
        }
        parts.sort_by_key(|part| part.first);
        let users = named.into_values().collect();
        Self { parts, users }
    }

    /// The user to whom an id is subordinate, or else the id itself.
    #[must_use]
    pub fn owner(&self, uid: u32) -> u32 {
        if uid == 0 || self.users.contains(&uid) {
            return uid;
        }
        let after = self.parts.partition_point(|part| part.first <= uid);
        let part = after.checked_sub(1).and_then(|at| self.parts.get(at));
        part.filter(|part| uid <= part.last)
            .map_or(uid, |part| part.owner)
    }

    /// Whether this id certainly belongs to a user of its own, and is not perhaps a subordinate id that this
    /// node's files don't tell of.
    #[must_use]
    pub fn is_somebody(uid: u32) -> bool {
        uid < FIRST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subordinate_ids_are_their_owners() {
        let passwd = "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/:/bin/sh\n\
                      bob:x:1001:1001::/:/bin/sh\nlate:x:165540:1::/:\nbroken\n";
        let subuid = "alice:100000:65536\nbob:165536:65536\n1002:300000:10\nnobody-here:400000:10\n\
                      root:500000:10\nroot:600000:10\nbroken\nx:y:z\nempty:700000:0\nalice:4294967290:100\n";
        let owners = Owners::of(subuid, passwd);
        for (uid, owner) in [
            (0, 0),
            (1000, 1000),
            (99_999, 99_999),
            (100_000, 1000),
            (165_535, 1000),
            (165_536, 1001),
            // A user with his own id.
            (165_540, 165_540),
            (231_071, 1001),
            (231_072, 231_072),
            (300_009, 1002),
            (300_010, 300_010),
            (400_005, 400_000),
            (500_009, 500_000),
            (600_009, 500_000),
            (700_000, 700_000),
            (u32::MAX, 1000),
        ] {
            assert_eq!(owners.owner(uid), owner, "{uid}");
        }
        assert_eq!(Owners::default().owner(100_000), 100_000);
    }
}
