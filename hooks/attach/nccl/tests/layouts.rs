//! What the plugin reads is where a C compiler puts it, in each copy of the interface.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod c;

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::process::Command;

use litd_nccl::abi::{Arm, Coll, Descriptor, KernelCh, Profiler, StateArgs};

#[test]
fn the_plugin_reads_what_each_copy_has_at_the_same_place() {
    let directory = tempfile::tempdir().unwrap();
    let arm = offset_of!(Descriptor, arm);
    let wanted = [
        ("offsetof(Descriptor, type)", offset_of!(Descriptor, kind)),
        (
            "offsetof(Descriptor, parentObj)",
            offset_of!(Descriptor, parent),
        ),
        ("offsetof(Descriptor, rank)", offset_of!(Descriptor, rank)),
        (
            "offsetof(Descriptor, coll.seqNumber)",
            arm + offset_of!(Coll, sequence),
        ),
        (
            "offsetof(Descriptor, coll.func)",
            arm + offset_of!(Coll, function),
        ),
        (
            "offsetof(Descriptor, coll.count)",
            arm + offset_of!(Coll, count),
        ),
        (
            "offsetof(Descriptor, coll.datatype)",
            arm + offset_of!(Coll, datatype),
        ),
        (
            "offsetof(Descriptor, coll.nChannels)",
            arm + offset_of!(Coll, channels),
        ),
        (
            "offsetof(Descriptor, kernelCh.channelId)",
            arm + offset_of!(KernelCh, channel),
        ),
        (
            "offsetof(Descriptor, kernelCh.pTimer)",
            arm + offset_of!(KernelCh, timer),
        ),
        (
            "offsetof(StateArgs, kernelCh.pTimer)",
            offset_of!(StateArgs, timer),
        ),
        ("sizeof(Profiler)", size_of::<Profiler<fn()>>()),
        ("offsetof(Profiler, name)", offset_of!(Profiler<fn()>, name)),
        ("offsetof(Profiler, init)", offset_of!(Profiler<fn()>, init)),
        (
            "offsetof(Profiler, startEvent)",
            offset_of!(Profiler<fn()>, start_event),
        ),
        (
            "offsetof(Profiler, stopEvent)",
            offset_of!(Profiler<fn()>, stop_event),
        ),
        (
            "offsetof(Profiler, recordEventState)",
            offset_of!(Profiler<fn()>, record_event_state),
        ),
        (
            "offsetof(Profiler, finalize)",
            offset_of!(Profiler<fn()>, finalize),
        ),
    ];
    for copy in c::COPIES {
        let shown = Command::new(c::compiled("layouts", copy, directory.path()))
            .output()
            .unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        let parsed = shown.lines().map(|line| {
            let (name, number) = line.rsplit_once(' ').unwrap();
            (name, number.parse::<usize>().unwrap())
        });
        let shown = BTreeMap::from_iter(parsed);
        for (name, place) in wanted {
            assert_eq!(shown[name], place, "{name} of version and copy {copy:?}");
        }
        // No byte behind a description is read.
        assert!(
            shown["sizeof(Descriptor)"] >= arm + size_of::<Arm>(),
            "{copy:?}"
        );
        assert!(
            shown["sizeof(StateArgs)"] >= size_of::<StateArgs>(),
            "{copy:?}"
        );
        assert_eq!(shown["sizeof(Type)"], if copy.0 == 4 { 1 } else { 8 });
    }
}
