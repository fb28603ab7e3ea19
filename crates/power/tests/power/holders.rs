//! Holders of an AMD GPU, by made-up accounts of the kernel's: processes that use it, and imitations that anybody
//! can make.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::time::{Duration, Instant};

use crate::tree::gpu::{device, gpu, one};
use crate::tree::{Tree, addresses};
use litd_power::amdgpu::discover;
use litd_power::{PowerDomain, Search};
use nix::libc::O_PATH;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{Mode, SFlag, major, minor, mknod};

/// kfd's account: `location` is where partition `node` of GPU `id` is.
fn kfd_node(tree: &Tree, node: u32, id: u64, location: u32, minor: u32) {
    let node = format!("sys/class/kfd/kfd/topology/nodes/{node}");
    tree.put(format!("{node}/gpu_id"), format!("{id}\n"));
    let text = format!(
        "simd_count 1216\nlocation_id {location}\ndomain 0\ndrm_render_minor {minor}\nnum_xcc 8\n"
    );
    tree.put(format!("{node}/properties"), text);
}

/// Two GPUs, the first with two partitions. In the place of the second one's node stands a device
/// that every machine has: `/dev/null`.
fn two() -> Tree {
    let tree = one();
    gpu(&tree, 1, "0000:a6:00.0");
    kfd_node(&tree, 0, 0, 0, 0);
    kfd_node(&tree, 2, 1001, 0x8500, 128);
    kfd_node(&tree, 3, 1002, 0xa600, 129);
    // The second partition of the first.
    kfd_node(&tree, 4, 1003, 0x1000_8500, 140);
    let null = fs::metadata("/dev/null").unwrap().rdev();
    let number = format!("{}:{}\n", major(null), minor(null));
    tree.put(
        format!("{}/drm/renderD129/dev", device("0000:a6:00.0")),
        number,
    );
    tree
}

/// A process of a user.
fn process(tree: &Tree, pid: u32, user: u32) {
    let text = format!("Name:\tpython3\nUid:\t{user}\t{user}\t{user}\t{user}\n");
    tree.put(format!("proc/{pid}/status"), text);
}

/// The description of a client that has worked on the second GPU.
fn worked() -> String {
    "pos:\t0\nflags:\t02100002\nmnt_id:\t26\ndrm-driver:\tamdgpu\ndrm-client-id:\t7\n\
     drm-pdev:\t0000:a6:00.0\ndrm-memory-vram:\t64 KiB\ndrm-engine-compute:\t4711 ns\n"
        .to_owned()
}

/// A descriptor of a process: what its link says (`/dev/null` under another name), and what the
/// kernel tells of it.
fn descriptor(tree: &Tree, pid: u32, fd: u32, name: &str, told: &str) {
    let dri = tree.path("dev/dri");
    fs::create_dir_all(&dri).unwrap();
    if !dri.join("renderD129").is_symlink() {
        symlink("/dev/null", dri.join("renderD129")).unwrap();
    }
    tree.link(format!("proc/{pid}/fd/{fd}"), dri.join(name));
    tree.put(format!("proc/{pid}/fdinfo/{fd}"), told);
}

/// Asks until there is an answer: on a busy machine a look at all processes may take longer than the caller waits.
fn told(gpu: &mut dyn PowerDomain) -> Vec<(u32, u32)> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut holders = gpu.holders();
    while holders.is_err() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
        holders = gpu.holders();
    }
    let holders = holders.unwrap().into_iter();
    holders.map(|holder| (holder.pid, holder.uid)).collect()
}

#[test]
fn processes_that_use_a_gpu_hold_it() {
    let tree = two();
    let kfd = "sys/class/kfd/kfd/proc";
    // 70 could use all and has memory on one; 71 has a queue on a partition; 72 uses none; 73 has
    // ended.
    for (pid, bytes) in [
        (70, [4096, 0, 0]),
        (71, [0, 0, 0]),
        (72, [0, 0, 0]),
        (73, [0, 1, 0]),
    ] {
        for (id, bytes) in [1001, 1002, 1003].into_iter().zip(bytes) {
            tree.put(format!("{kfd}/{pid}/vram_{id}"), format!("{bytes}\n"));
        }
    }
    tree.put(format!("{kfd}/71/queues/0/gpuid"), "1003\n");
    tree.put(format!("{kfd}/72/pasid"), "32770\n");
    for (pid, user) in [(70, 1000), (71, 1001), (72, 1000), (80, 1002)] {
        process(&tree, pid, user);
    }
    descriptor(&tree, 80, 9, "renderD129", &worked());
    descriptor(&tree, 70, 4, "renderD129", "pos:\t0\nflags:\t02\n");
    tree.link("proc/self", "80");
    tree.put("proc/version", "Linux\n");
    let mut found = discover(&tree.search());
    let [first, second] = &mut found.domains[..] else {
        panic!("{:?}", addresses(&found));
    };
    assert_eq!(told(first.as_mut()), [(70, 1000), (71, 1001)]);
    assert_eq!(told(second.as_mut()), [(80, 1002)]);
}

#[test]
fn a_client_counts_once_it_has_worked_or_has_memory() {
    let tree = two();
    process(&tree, 80, 1000);
    let mut gpu = discover(&tree.search()).domains.pop().unwrap();
    let mut holds = |told_of: &str| {
        descriptor(&tree, 80, 3, "renderD129", told_of);
        let holds = !told(gpu.as_mut()).is_empty();
        tree.remove("proc/80/fd/3");
        holds
    };
    assert!(holds(&worked()));
    let idle = worked().replace("4711 ns", "0 ns");
    assert!(!holds(&idle), "an exporter has the node open");
    let capacity = format!("{idle}drm-engine-capacity-compute:\t4\n");
    assert!(!holds(&capacity));
    assert!(holds(&idle.replace("64 KiB", "2048 KiB")));
    assert!(holds(&idle.replace("64 KiB", "2 MiB")));
    // A partition's client is nowhere on the bus.
    assert!(holds(&worked().replace("drm-pdev:\t0000:a6:00.0\n", "")));
    assert!(
        !holds(&worked().replace("a6:00.0", "85:00.0")),
        "another GPU's"
    );
    assert!(
        !holds(&worked().replace("drm-client-id:\t7\n", "")),
        "no client of DRM's"
    );
}

#[test]
fn what_anybody_can_make_holds_no_gpu() {
    let tree = two();
    process(&tree, 90, 1000);
    let render = tree.path("dev/dri/renderD129");
    // A plain file of the right name, with the kernel's own words in front of it.
    let forged = tree.path("home/dri/renderD129");
    tree.put("home/dri/renderD129", "");
    tree.link("proc/90/fd/3", &forged);
    tree.put("proc/90/fdinfo/3", worked());
    // Another device under that name.
    let zero = tree.path("other/dri");
    fs::create_dir_all(&zero).unwrap();
    symlink("/dev/zero", zero.join("renderD129")).unwrap();
    tree.link("proc/90/fd/4", zero.join("renderD129"));
    tree.put("proc/90/fdinfo/4", worked());
    // The node itself, opened without a right to it: 010000000 is O_PATH.
    descriptor(
        &tree,
        90,
        5,
        "renderD129",
        &worked().replace("02100002", "012100000"),
    );
    // Unreadable flags.
    descriptor(
        &tree,
        90,
        6,
        "renderD129",
        &worked().replace("02100002", "0x8"),
    );
    // A descriptor that has changed hands between two looks.
    descriptor(
        &tree,
        90,
        7,
        "renderD129",
        &format!("ino:\t1\n{}", worked()),
    );
    assert!(render.exists());
    let mut gpu = discover(&tree.search()).domains.pop().unwrap();
    assert_eq!(told(gpu.as_mut()), []);
    // The same with rights.
    descriptor(&tree, 90, 8, "renderD129", &worked());
    assert_eq!(told(gpu.as_mut()), [(90, 1000)]);
}

/// The present process as procfs shows it, with real descriptors that anybody can make, beside made-up GPUs.
#[test]
fn real_descriptors_without_a_right_hold_no_gpu() {
    let tree = two();
    let render = tree.path("home/dri/renderD129");
    fs::create_dir_all(render.parent().unwrap()).unwrap();
    let plain = fs::File::create(&render).unwrap();
    let anonymous = memfd_create("dri/renderD129", MFdFlags::empty()).unwrap();
    // The node itself, which takes root to make: found by its path, and never opened.
    let node = tree.path("dev/dri/renderD129");
    fs::create_dir_all(node.parent().unwrap()).unwrap();
    let null = fs::metadata("/dev/null").unwrap().rdev();
    let all = Mode::from_bits_truncate(0o666);
    let found = match mknod(&node, SFlag::S_IFCHR, all, null) {
        Ok(()) => {
            let path = || {
                OpenOptions::new()
                    .read(true)
                    .custom_flags(O_PATH)
                    .open(&node)
            };
            // With rights to it, and still no client of DRM's: this is another driver's.
            Some((path().unwrap(), fs::File::open(&node).unwrap()))
        }
        Err(error) => {
            eprintln!("SKIPPED for device nodes, which can't be made here: {error}");
            None
        }
    };
    let search = Search {
        proc: "/proc".into(),
        ..tree.search()
    };
    for gpu in &mut discover(&search).domains {
        let holders = told(gpu.as_mut());
        let own = std::process::id();
        assert!(holders.iter().all(|&(pid, _)| pid != own), "{holders:?}");
    }
    drop((plain, anonymous, found));
}
