//! The job that a scheduler put a process into, by its control groups. A process may say anything of itself, but
//! the kernel tells its control group, which only the scheduler could choose.
//!
//! Shapes: Slurm's cgroup/v1 (`slurm/uid_U/job_J`) and cgroup/v2 (`slurmstepd.scope/job_J`) plugins;
//! the kubelet's systemd driver (`kubepods-burstable-podUID.slice`) and cgroupfs driver
//! (`kubepods/burstable/podUID`), with containerd, CRI-O or Docker below; containers on their own ([`container`]).
//! A daemon in a pod of its own sees others relative to itself (`/../../kubepods-…`): cgroups(7).
//!
//! What is within a pod or a container is its root's to make up, and below a user's slice the user's; so the outermost
//! is what counts, and jobs within it are only told besides.

use std::fmt;

/// At most so many schedulers run within one another.
const DEEPEST: usize = 4;

/// A container's id is shown with so many digits, as `docker ps` does.
const SHORT: usize = 12;

/// What the names of pods and of containers begin with.
const POD: &str = "pod-";
const CONTAINER: &str = "container-";

/// The longest part of a container's own name that is shown.
const LONGEST: usize = 64;

/// Groups of the node's root, whose sessions are a user's in name only.
const OF_ROOT: [&str; 3] = ["user.slice", "user-0.slice", "user@0.service"];

/// The job that a process belongs to, as its scheduler knows it: `slurm-1234`, `pod-UID`,
/// `container-ID`; `pod-UID/slurm-1234` where a scheduler runs within another's job or a container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Home(String);

impl Home {
    /// Reads `/proc/PID/cgroup`, which may contain anything. `None`: no scheduler's job, or several that
    /// contradict each other.
    #[must_use]
    pub fn of(cgroup: &str) -> Option<Self> {
        let mut jobs = Vec::new();
        let mut containers = Vec::new();
        for line in cgroup.lines() {
            // hierarchy:controllers:path
            let Some(path) = line.splitn(3, ':').nth(2) else {
                continue;
            };
            let found = read(path.strip_suffix(" (deleted)").unwrap_or(path));
            match &found[..] {
                [] => {}
                // Controllers of which a scheduler makes no use may tell the container around it.
                [only] if only.starts_with(CONTAINER) => containers.push(only.clone()),
                _ => jobs.push(found.join("/")),
            }
        }
        // Of containers that contradict each other any will do: none of them is the node itself.
        agreed(&jobs).or(containers.into_iter().next()).map(Self)
    }

    /// The name as it is shown.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The outermost job. Its own processes may have made up those within it.
    #[must_use]
    pub fn outermost(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(job, _)| job)
    }

    /// Whether it is a pod or a container, in which processes choose their user freely.
    #[must_use]
    pub fn is_pod(&self) -> bool {
        [POD, CONTAINER].iter().any(|kind| self.0.starts_with(kind))
    }

    /// Whether this is the job that a scheduler calls that, or a part of it.
    #[must_use]
    pub fn belongs_to(&self, id: &str) -> bool {
        self.0.split('/').any(|part| part == id)
    }
}

impl fmt::Display for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a job in this daemon: what its scheduler calls it, and then what its hooks say. Hooks
/// can't take another's: a name that looks like a scheduler's, or like a stage of somebody's job, from a process that
/// is in no scheduler's job gets its user's in front.
pub(crate) fn job_name(home: Option<&Home>, uid: u32, label: &str) -> String {
    const KINDS: [&str; 4] = ["slurm-", "pod-", "container-", "user-"];
    match home {
        // The usual label under Slurm is its job's and its step's.
        Some(home) if repeats(home, label) => label.to_owned(),
        Some(home) => format!("{home}/{label}"),
        None if label.contains('/') || KINDS.iter().any(|kind| label.starts_with(kind)) => {
            of_user(uid, label)
        }
        None => label.to_owned(),
    }
}

/// The name of a user's job that no other user's job can have.
pub(crate) fn of_user(uid: u32, name: &str) -> String {
    format!("user-{uid}/{name}")
}

fn repeats(home: &Home, label: &str) -> bool {
    let more = label.strip_prefix(home.as_str());
    more.is_some_and(|more| more.is_empty() || more.starts_with('.'))
}

/// The longest of these, if all others are its beginnings: controllers may follow the hierarchy less far. Where they
/// contradict each other, what they have in common: a container's root may make up groups that do. `None` if that is
/// nothing.
fn agreed(found: &[String]) -> Option<String> {
    let longest = found.iter().max_by_key(|it| it.len())?;
    let longest: Vec<&str> = longest.split('/').collect();
    let common = |it: &String| {
        let parts = it.split('/').count();
        let same = it
            .split('/')
            .zip(&longest)
            .take_while(|(one, other)| one == *other);
        match same.count() {
            same if same == parts => longest.len(),
            same => same,
        }
    };
    let common = found.iter().map(common).min()?;
    let common = longest.get(..common)?.join("/");
    (!common.is_empty()).then_some(common)
}

/// The jobs that a control group is in, and before them the container that they are in: outermost first.
fn read(path: &str) -> Vec<String> {
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !matches!(*part, "" | "." | ".."))
        .collect();
    // For a path relative to another pod's the common part is not shown.
    let relative = path.starts_with("/..");
    let of_root = parts
        .iter()
        .zip(OF_ROOT)
        .take_while(|(part, of_root)| *part == of_root);
    let of_root = Some(of_root.count()).filter(|&count| count > 1);
    let mut jobs: Vec<String> = Vec::new();
    for (at, &part) in parts.iter().enumerate() {
        let before = |back: usize| at.checked_sub(back).and_then(|at| parts.get(at).copied());
        let is_users = of_root.is_none_or(|count| at >= count) && is_users(part, at);
        if jobs.len() == DEEPEST || is_users {
            // Below this users make groups of any name.
            break;
        }
        let pod = pod_slice(part).or_else(|| {
            let below = |part: &str| part.ends_with("kubepods");
            let within = before(1).is_some_and(below)
                || matches!(before(1), Some("burstable" | "besteffort"))
                    && (before(2).is_some_and(below) || relative && at == 1);
            let uid = part
                .strip_prefix("pod")
                .filter(|_| within || relative && at == 0);
            uid.and_then(pod_uid)
        });
        if let Some(uid) = pod {
            jobs.push(format!("{POD}{uid}"));
        } else if let Some(job) = slurm_job(part, before(1), before(2)) {
            jobs.push(format!("slurm-{job}"));
        } else if jobs.is_empty()
            && let Some(name) = container(part, before(1))
        {
            jobs.push(format!("{CONTAINER}{name}"));
        }
    }
    jobs
}

/// Whether what is below is a user's to make up. `/user/NAME/NUMBER` is libpam-cgfs's.
fn is_users(part: &str, at: usize) -> bool {
    let of_pam = at == 0 && part == "user";
    of_pam || part == "user.slice" || part.starts_with("user-") || part.starts_with("user@")
}

/// `kubepods-burstable-pod0b9c…_….slice`, also with what is above the kubelet in front, and as
/// containerd has it where it does not speak to systemd (`….slice:cri-containerd:ID`).
fn pod_slice(part: &str) -> Option<String> {
    let slice = part.split(':').next()?.strip_suffix(".slice")?;
    let (above, uid) = slice.rsplit_once("-pod")?;
    let kubelets = above.split('-').any(|part| part == "kubepods");
    if kubelets { pod_uid(uid) } else { None }
}

/// A UID (RFC 4122, dashes or systemd's underscores), or the hash of a static pod.
fn pod_uid(text: &str) -> Option<String> {
    let uid = text.replace('_', "-").to_ascii_lowercase();
    let groups: Vec<usize> = uid.split('-').map(str::len).collect();
    let shape = matches!(groups[..], [8, 4, 4, 4, 12] | [32]);
    let digits = uid
        .bytes()
        .all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    (shape && digits).then_some(uid)
}

/// `job_1234` below `slurmstepd.scope` (cgroup/v2), or below `uid_1000` of `slurm` (cgroup/v1); with
/// the node's name where several slurmd run on one.
fn slurm_job<'a>(part: &'a str, above: Option<&str>, far_above: Option<&str>) -> Option<&'a str> {
    let job = part.strip_prefix("job_")?;
    let digits = |text: &str| {
        !text.is_empty() && text.len() <= 20 && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let above = above?;
    let second = above == "slurmstepd.scope" || above.ends_with("_slurmstepd.scope");
    let first = above.strip_prefix("uid_").is_some_and(digits)
        && far_above.is_some_and(|it| it == "slurm" || it.starts_with("slurm_"));
    ((first || second) && digits(job)).then_some(job)
}

/// A container's name, by its group and the one above: an id that is one of its own, or else the engine's word and the
/// name that an administrator gave it.
fn container(part: &str, above: Option<&str>) -> Option<String> {
    if let Some(id) = container_id(part) {
        return Some(id.to_owned());
    }
    let (engine, name) = named_container(part, above)?;
    // Names of groups may have any characters in them. Containers whose names look the same here count as one.
    let plain = |it: char| {
        if it.is_ascii_alphanumeric() || "-_.".contains(it) {
            it
        } else {
            '_'
        }
    };
    let plain: String = name.chars().take(LONGEST).map(plain).collect();
    (!name.is_empty()).then(|| format!("{engine}{plain}"))
}

/// `docker-ID.scope`, `libpod-ID.scope`, `crio-ID.scope`, or the bare id; podman's `libpod-ID` with the manager
/// "cgroupfs", and `libpod-payload-ID` in the group of the unit that has started it (`--cgroups=split`, as Quadlet
/// has it).
fn container_id(part: &str) -> Option<&str> {
    let id = part.strip_suffix(".scope").unwrap_or(part);
    let id = id.rsplit(['-', ':']).next()?;
    let hexadecimal = id.bytes().all(|byte| byte.is_ascii_hexdigit());
    (id.len() == 64 && hexadecimal)
        .then(|| id.get(..SHORT))
        .flatten()
}

/// Containers that have a name:
/// - of LXC, Incus and LXD, which put the project before it: `lxc.payload.NAME`, with the container's monitor in
///   `lxc.monitor.NAME`; in older versions `lxc/NAME` or `lxc.payload/NAME`;
/// - of systemd-nspawn, and other machines of systemd-machined: `machine-NAME.scope`, `systemd-nspawn@NAME.service`; or
///   `payload` in the group of any unit that has started one.
fn named_container<'a>(part: &'a str, above: Option<&'a str>) -> Option<(&'static str, &'a str)> {
    let above = above.unwrap_or_default();
    let unit = |prefix: &str, kind: &str| part.strip_prefix(prefix)?.strip_suffix(kind);
    let lxc = ["lxc.payload.", "lxc.monitor."]
        .iter()
        .find_map(|it| part.strip_prefix(it));
    let machine = || unit("machine-", ".scope").or_else(|| unit("systemd-nspawn@", ".service"));
    let is_unit = above.ends_with(".service") || above.ends_with(".scope");
    match lxc {
        Some(name) => Some(("lxc-", name)),
        None if matches!(above, "lxc" | "lxc.payload" | "lxc.monitor") => Some(("lxc-", part)),
        None if part == "payload" && is_unit => Some(("", above)),
        None => machine().map(|name| ("machine-", name)),
    }
}
