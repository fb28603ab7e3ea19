//! The job of a process, by the kernel's word on its control groups: the shapes that schedulers make, those that
//! users can make up, and arbitrary bytes.

use litd_core::Home;
use proptest::prelude::*;

const UID: &str = "1b9f5d1e-3f0c-4a57-9a0e-0c9a1d5b7c11";
const SLICED: &str = "1b9f5d1e_3f0c_4a57_9a0e_0c9a1d5b7c11";
const CONTAINER: &str = "8d3a1f0c9b7e6d5c4b3a29180716f5e4d3c2b1a0998877665544332211ffeedd";

fn home(cgroup: &str) -> Option<String> {
    Home::of(cgroup).map(|home| home.as_str().to_owned())
}

fn v2(path: &str) -> Option<String> {
    home(&format!("0::{path}\n"))
}

#[test]
fn slurm_by_cgroup_v2() {
    for path in [
        "/system.slice/slurmstepd.scope/job_1234/step_0/user/task_3",
        "/system.slice/slurmstepd.scope/job_1234/step_batch/user/task_0",
        "/system.slice/slurmstepd.scope/job_1234/step_extern/user/task_special",
        // Several slurmd on one node.
        "/system.slice/gpu001_slurmstepd.scope/job_1234/step_0",
        "/system.slice/slurmstepd.scope/job_1234/step_0/user/task_3 (deleted)",
    ] {
        assert_eq!(v2(path).as_deref(), Some("slurm-1234"), "{path}");
    }
    // The daemons themselves are in nobody's job.
    assert_eq!(v2("/system.slice/slurmd.service"), None);
    assert_eq!(v2("/system.slice/slurmstepd.scope/system"), None);
}

#[test]
fn slurm_by_cgroup_v1() {
    let lines = "12:freezer:/slurm/uid_1000/job_77/step_0\n\
                 9:memory:/slurm/uid_1000/job_77/step_0/task_0\n\
                 5:devices:/slurm/uid_1000/job_77/step_0\n\
                 4:pids:/system.slice/slurmd.service\n\
                 1:name=systemd:/system.slice/slurmd.service\n\
                 0::/system.slice/slurmd.service\n";
    assert_eq!(home(lines).as_deref(), Some("slurm-77"));
    let named = "9:memory:/slurm_gpu001/uid_1000/job_77/step_0\n";
    assert_eq!(home(named).as_deref(), Some("slurm-77"));
}

#[test]
fn pods_of_every_driver_and_runtime() {
    let pod = format!("pod-{UID}");
    for path in [
        // systemd: containerd, CRI-O, cri-dockerd; guaranteed and burstable.
        format!("/kubepods.slice/kubepods-pod{SLICED}.slice/cri-containerd-{CONTAINER}.scope"),
        format!(
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICED}.slice/crio-{CONTAINER}.scope"
        ),
        format!(
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{SLICED}.slice/docker-{CONTAINER}.scope/child"
        ),
        // A kubelet with a root of its own (kind).
        format!(
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{SLICED}.slice/cri-containerd-{CONTAINER}.scope"
        ),
        // cgroupfs.
        format!("/kubepods/pod{UID}/{CONTAINER}"),
        format!("/kubepods/burstable/pod{UID}/{CONTAINER}"),
        // containerd where it is not told that systemd rules.
        format!(
            "/system.slice/containerd.service/kubepods-burstable-pod{SLICED}.slice:cri-containerd:{CONTAINER}"
        ),
        // As a daemon in another pod sees it.
        format!("/../../kubepods-burstable-pod{SLICED}.slice/cri-containerd-{CONTAINER}.scope"),
        format!("/../../pod{UID}/{CONTAINER}"),
        format!("/../../../burstable/pod{UID}/{CONTAINER}"),
    ] {
        assert_eq!(v2(&path), Some(pod.clone()), "{path}");
    }
    let hash = "5f3b1a2c4d6e8f90a1b2c3d4e5f60718";
    let fixed = format!("/kubepods/burstable/pod{hash}/{CONTAINER}");
    assert_eq!(v2(&fixed), Some(format!("pod-{hash}")));
}

#[test]
fn containers_on_their_own() {
    let id = format!("container-{}", &CONTAINER[..12]);
    for path in [
        format!("/system.slice/docker-{CONTAINER}.scope"),
        format!("/docker/{CONTAINER}"),
        format!("/machine.slice/libpod-{CONTAINER}.scope/container"),
        format!("/../docker-{CONTAINER}.scope"),
    ] {
        assert_eq!(v2(&path), Some(id.clone()), "{path}");
    }
}

#[test]
fn containers_of_podman_without_a_scope_of_their_own() {
    let id = format!("container-{}", &CONTAINER[..12]);
    for path in [
        // --cgroups=split, which is Quadlet's default.
        format!("/system.slice/train.service/libpod-payload-{CONTAINER}"),
        format!("/user.slice/user-0.slice/session-3.scope/libpod-payload-{CONTAINER}"),
        // cgroup_manager = "cgroupfs".
        format!("/libpod_parent/libpod-{CONTAINER}"),
        format!("/libpod_parent/libpod-{CONTAINER}/system.slice/train.service"),
        // As a daemon in a container sees it.
        format!("/../train.service/libpod-payload-{CONTAINER}"),
    ] {
        assert_eq!(v2(&path), Some(id.clone()), "{path}");
    }
}

#[test]
fn containers_that_have_names() {
    for (path, name) in [
        // LXC, Incus and LXD ("PROJECT_NAME"), with cgroup/v2 and what was before.
        ("/lxc.payload.train/init.scope", "lxc-train"),
        (
            "/lxc.payload.ml_train-1/system.slice/a.service",
            "lxc-ml_train-1",
        ),
        ("/lxc.monitor.train", "lxc-train"),
        ("/lxc/101/ns", "lxc-101"),
        ("/lxc/train", "lxc-train"),
        ("/lxc.payload/train/init.scope", "lxc-train"),
        ("/lxc.monitor/101", "lxc-101"),
        // lxc.cgroup.dir, and lxc.cgroup.pattern.
        ("/system.slice/a.service/lxc.payload.train", "lxc-train"),
        ("/lxc/train/payload", "lxc-train"),
        // systemd-nspawn, and other machines.
        (
            "/machine.slice/machine-train.scope/payload/init.scope",
            "machine-train",
        ),
        ("/machine.slice/machine-train.scope", "machine-train"),
        (
            "/machine.slice/systemd-nspawn@train.service/payload",
            "machine-train",
        ),
        (
            "/machine.slice/systemd-nspawn@train.service",
            "machine-train",
        ),
        (
            r"/machine.slice/machine-my\x2dtrain.scope/payload",
            "machine-my_x2dtrain",
        ),
        (
            "/machine.slice/container@train.service/payload/init.scope",
            "container_train.service",
        ),
        (
            "/system.slice/train.service/payload/init.scope",
            "train.service",
        ),
    ] {
        assert_eq!(v2(path), Some(format!("container-{name}")), "{path}");
    }
    // All of one controller's hierarchies, as the processes of an old LXC are in.
    let lines = "9:memory:/lxc/train\n4:pids:/lxc/train/init.scope\n\
                 1:name=systemd:/lxc/train/init.scope\n0::/lxc/train/init.scope\n";
    assert_eq!(home(lines).as_deref(), Some("container-lxc-train"));
}

/// The names of groups that are no containers'.
#[test]
fn services_are_no_containers() {
    for path in [
        "/system.slice/train.service",
        "/system.slice/train.service/supervisor",
        "/system.slice/lxc.service",
        "/lxc",
        "/lxc.payload.",
        "/lxc.payload",
        "/machine.slice",
        "/machine.slice/machine-.scope",
        "/system.slice/machine-setup.service",
        "/payload",
        "/jobs/payload",
        "/user.slice/user-0.slice/session-3.scope",
    ] {
        assert_eq!(v2(path), None, "{path}");
    }
}

/// Whoever is root in a container makes groups of any name below the container's own.
#[test]
fn who_is_in_a_container_stays_in_it_whatever_groups_it_makes() {
    for (path, job) in [
        ("system.slice/slurmstepd.scope/job_5/step_0", "/slurm-5"),
        ("slurm/uid_0/job_5/step_0", "/slurm-5"),
        ("lxc/other", ""),
        ("machine.slice/machine-other.scope", ""),
        ("user.slice/user-1000.slice/session-1.scope", ""),
    ] {
        for (of, name) in [
            ("/lxc.payload.train", "container-lxc-train".to_owned()),
            (
                "/machine.slice/machine-train.scope/payload",
                "container-machine-train".to_owned(),
            ),
            (
                &format!("/docker/{CONTAINER}"),
                format!("container-{}", &CONTAINER[..12]),
            ),
        ] {
            let path = format!("0::{of}/{path}\n");
            let home = Home::of(&path).unwrap();
            assert_eq!(home.as_str(), format!("{name}{job}"), "{path}");
            assert!(home.is_pod() && home.outermost() == name);
            // Slurm's Prolog in the container is heard all the same.
            assert_eq!(home.belongs_to("slurm-5"), !job.is_empty());
        }
    }
    // Nor do hierarchies that contradict each other lead out of it, or of a pod.
    let two = "3:cpu:/lxc/train/slurm/uid_1/job_1\n2:memory:/lxc/train/slurm/uid_1/job_2\n";
    assert_eq!(home(two).as_deref(), Some("container-lxc-train"));
    let pod = format!("/kubepods/pod{UID}/{CONTAINER}/slurm/uid_1");
    let two = format!("3:cpu:{pod}/job_1/step_0\n2:memory:{pod}/job_2/step_0\n");
    assert_eq!(home(&two), Some(format!("pod-{UID}")));
}

/// In a job of Slurm users are the node's own, whatever containers they start there.
#[test]
fn a_container_in_a_slurm_job_is_the_jobs() {
    for below in [
        format!("libpod-payload-{CONTAINER}"),
        "lxc.payload.train".to_owned(),
        "a.service/payload".to_owned(),
    ] {
        let path = format!("/system.slice/slurmstepd.scope/job_5/step_0/user/task_0/{below}");
        assert_eq!(v2(&path).as_deref(), Some("slurm-5"), "{path}");
    }
    let lines =
        format!("9:memory:/slurm/uid_1000/job_77/step_0\n1:name=systemd:/docker/{CONTAINER}\n");
    assert_eq!(home(&lines).as_deref(), Some("slurm-77"));
}

#[test]
fn a_slurm_job_in_a_pod_is_both() {
    let path = format!(
        "/kubepods.slice/kubepods-pod{SLICED}.slice/cri-containerd-{CONTAINER}.scope/system.slice/slurmstepd.scope/job_5/step_0"
    );
    let home = Home::of(&format!("0::{path}\n")).unwrap();
    assert_eq!(home.as_str(), format!("pod-{UID}/slurm-5"));
    assert!(home.belongs_to("slurm-5") && home.belongs_to(&format!("pod-{UID}")));
    assert!(!home.belongs_to("slurm-") && !home.belongs_to("slurm-55"));
}

#[test]
fn what_users_make_up_is_nobodys() {
    for path in [
        "/user.slice/user-1000.slice/user@1000.service/app.slice/slurmstepd.scope/job_9/step_0",
        "/user.slice/user-1000.slice/user@1000.service/system.slice/slurmstepd.scope/job_9",
        "/user.slice/user-1000.slice/user@1000.service/kubepods/pod1b9f5d1e-3f0c-4a57-9a0e-0c9a1d5b7c11",
        "/system.slice/train.service/job_9",
        "/system.slice/slurmstepd.scope/job_../step_0",
        "/system.slice/slurmstepd.scope/job_/step_0",
        "/system.slice/slurmstepd.scope/job_1x",
        "/system.slice/slurmstepd.scope/job_111111111111111111111",
        "/slurm/job_9/uid_1000",
        "/kubepods/podx",
        "/pod1b9f5d1e-3f0c-4a57-9a0e-0c9a1d5b7c11",
        "/user.slice/user-1000.slice/user@1000.service/app.slice/a.service/payload",
        "/user.slice/user-1000.slice/user@1000.service/lxc.payload.train",
        "/user.slice/user-1000.slice/session-3.scope/lxc/train",
        // Groups that libpam-cgfs gives to users.
        "/user/alice/0/lxc/train",
        "/",
        "",
    ] {
        assert_eq!(v2(path), None, "{path}");
    }
    // Hierarchies that contradict each other.
    let two = "3:cpu:/slurm/uid_1/job_1/step_0\n2:memory:/slurm/uid_1/job_2/step_0\n";
    assert_eq!(home(two), None);
}

/// Parts that schedulers use, and others, in any order.
fn part() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("system.slice".to_owned()),
        Just("slurmstepd.scope".to_owned()),
        Just("slurm".to_owned()),
        Just("kubepods".to_owned()),
        Just("burstable".to_owned()),
        Just("user.slice".to_owned()),
        Just("..".to_owned()),
        "uid_[0-9]{0,6}",
        "job_[0-9]{0,22}",
        Just(format!("pod{UID}")),
        Just(format!("kubepods-pod{SLICED}.slice")),
        Just(format!("docker-{CONTAINER}.scope")),
        Just("lxc".to_owned()),
        Just("payload".to_owned()),
        "lxc\\.payload\\.\\PC{0,300}",
        "machine-\\PC{0,20}\\.scope",
        "\\PC{0,20}",
    ]
}

proptest! {
    /// From any input, a name can be printed, split and compared.
    #[test]
    fn anything_is_read(text in any::<Vec<u8>>()) {
        let _ = home(&String::from_utf8_lossy(&text));
    }

    #[test]
    fn names_are_short_and_of_known_kinds(
        lines in prop::collection::vec(prop::collection::vec(part(), 0..9), 0..4)
    ) {
        let text: String = lines.iter().map(|parts| format!("1:x:/{}\n", parts.join("/"))).collect();
        if let Some(name) = home(&text) {
            prop_assert!(name.len() <= 200);
            for part in name.split('/') {
                let known = ["slurm-", "pod-", "container-"].iter().any(|kind| part.starts_with(kind));
                prop_assert!(known, "{name}");
                prop_assert!(part.bytes().all(|it| b"-_.".contains(&it) || it.is_ascii_alphanumeric()));
            }
        }
    }

    /// Groups below a job's own never make it another's.
    #[test]
    fn groups_below_stay_in_the_job(below in prop::collection::vec(part(), 0..6)) {
        let path = format!("/system.slice/slurmstepd.scope/job_7/step_0/{}", below.join("/"));
        if let Some(name) = v2(&path) {
            prop_assert!(name == "slurm-7" || name.starts_with("slurm-7/"), "{name}");
        }
    }
}
