//! Files that are not read, each of which is one error of the user or the pod whose process has it locked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use litd_attach::Owner;

use super::search::Refusal;

/// So many errors of a user's or a pod's files are in the log in so long: any user can make any number of files.
const MOST_OF_AN_OWNER: u32 = 10;
const WHILE: Duration = Duration::from_secs(600);

/// So many files are remembered, of all owners together; an owner has no more than a search looks at. One that is not
/// remembered is looked at anew by the next search. And of so many owners it is known when they were told of.
const MOST: usize = 1024;

/// So many files of each owner are named in answers, and so many of all.
const SHOWN_OF_AN_OWNER: usize = 5;
const SHOWN: usize = 50;

/// A file that is not read.
#[derive(Debug)]
struct File {
    owner: Owner,
    text: String,
    /// Whether it is looked at again.
    may_pass: bool,
}

/// Files that are not read, by their ids.
#[derive(Debug, Default)]
pub(super) struct Refused {
    files: BTreeMap<String, File>,
    /// Errors that were told of each owner's files, and since when.
    told: BTreeMap<Owner, (Instant, u32)>,
}

impl Refused {
    /// The ids of those that are not looked at again.
    pub fn ids(&self) -> BTreeSet<String> {
        let for_good = self.files.iter().filter(|(_, file)| !file.may_pass);
        for_good.map(|(id, _)| id.clone()).collect()
    }

    /// Only these are locked still: the others are forgotten.
    pub fn keep(&mut self, locked: &BTreeSet<String>) {
        self.files.retain(|id, _| locked.contains(id));
    }

    /// A file is a ring after all.
    pub fn forget(&mut self, id: &str) {
        self.files.remove(id);
    }

    /// A file is not to be read. Returns what is to be told of it, in words, if anything.
    pub fn add(&mut self, refusal: Refusal, now: Instant) -> Option<String> {
        let Refusal {
            id,
            name,
            writer,
            why,
            may_pass,
        } = refusal;
        let text = format!("{name} of user {} {why}", writer.process.uid);
        let owner = writer.owner.clone();
        let is_known = self.files.contains_key(&id);
        if is_known || self.files.len() < MOST {
            let file = File {
                owner,
                text: text.clone(),
                may_pass,
            };
            self.files.insert(id, file);
        }
        let said = format!("no ring is read there: {text}");
        (!is_known).then(|| self.say(writer.owner, said, now))?
    }

    /// Processes of this owner have too many files open. Returns what is to be told of it, in words, if anything.
    pub fn overfull(&mut self, owner: Owner, now: Instant) -> Option<String> {
        let whose = match &owner {
            Owner::Pod(pod) => pod.clone(),
            Owner::User(uid) => format!("user {uid}"),
        };
        let said = format!(
            "not all rings of {whose} are looked for, because its processes that use GPUs have too many files open"
        );
        self.say(owner, said, now)
    }

    fn say(&mut self, owner: Owner, said: String, now: Instant) -> Option<String> {
        self.told.retain(|_, (since, _)| now < *since + WHILE);
        if self.told.len() >= MOST && !self.told.contains_key(&owner) {
            return None;
        }
        let (_, told) = self.told.entry(owner).or_insert((now, 0));
        *told = told.saturating_add(1);
        match (*told).cmp(&MOST_OF_AN_OWNER) {
            std::cmp::Ordering::Less => Some(said),
            std::cmp::Ordering::Equal => Some(format!(
                "{said}; no more of this kind is told of this user, or of this pod, for {} minutes",
                WHILE.as_secs() / 60
            )),
            std::cmp::Ordering::Greater => None,
        }
    }

    /// Sentences on some of the files: nobody's files take the place of another's.
    pub fn words(&self) -> Vec<String> {
        let mut named: BTreeMap<&Owner, usize> = BTreeMap::new();
        let files = self.files.values().filter(|file| {
            let named = named.entry(&file.owner).or_default();
            *named += 1;
            *named <= SHOWN_OF_AN_OWNER
        });
        let mut words: Vec<String> = files.map(|file| file.text.clone()).take(SHOWN).collect();
        if self.files.len() > words.len() {
            words.push(format!("and {} more", self.files.len() - words.len()));
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::ranks::Candidate;
    use crate::attach::rings::search::Writer;

    fn refusal(at: u32, uid: u32, owner: u32) -> Refusal {
        let process = Candidate {
            pid: 7,
            uid,
            began: 55,
            own: 7,
        };
        Refusal {
            id: format!("00:1a:{at}"),
            name: format!("nccl-{at}.ring"),
            writer: Writer {
                process,
                parent: 1,
                home: None,
                owner: Owner::User(owner),
            },
            why: "has 1 bytes".to_owned(),
            may_pass: at % 2 == 1,
        }
    }

    #[test]
    fn a_user_with_many_ids_is_told_of_ten_times_and_hides_nobody() {
        let (mut refused, now) = (Refused::default(), Instant::now());
        let adds = |refused: &mut Refused, at, uid, owner| {
            let told = refused.add(refusal(at, uid, owner), now);
            usize::from(told.is_some())
        };
        let told: usize = (0..2000)
            .map(|at| adds(&mut refused, at, 100_000 + at, 1000))
            .sum();
        assert_eq!(told, 10);
        assert_eq!(refused.files.len(), MOST);
        assert_eq!(adds(&mut refused, 3000, 1001, 1001), 1);
        assert_eq!(refused.words().len(), SHOWN_OF_AN_OWNER + 1);
        // What may be a ring the next time is looked at again.
        assert_eq!(refused.ids().len(), MOST / 2);
        refused.keep(&BTreeSet::from(["00:1a:4".to_owned()]));
        assert_eq!(adds(&mut refused, 3000, 1001, 1001), 1);
        assert_eq!(adds(&mut refused, 3000, 1001, 1001), 0, "it is known");
        let words = refused.words();
        let named = [
            "nccl-3000.ring of user 1001 has 1 bytes",
            "nccl-4.ring of user 100004 has 1 bytes",
        ];
        assert_eq!(words, named);
    }
}
