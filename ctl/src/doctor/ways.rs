//! The ways in which jobs on this node can be measured, the best one first (docs/measurement.md).

use litd::attach;
use litd::config::Config;
use litd::ports;
use litd_core::config::UseOfProfilers;
use litd_core::profilers::ProfilerOff;
use serde::Serialize;

/// A way to measure a job.
#[derive(Debug, Serialize)]
pub(super) struct Way {
    pub name: Name,
    pub state: State,
    /// What it gives, and what has to be done for it.
    pub text: String,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Name {
    /// The hook, with torch's profiler.
    HookKernels,
    /// The hook, with marks around modules.
    HookModules,
    /// PyTorch's own on-demand client.
    KinetoOnDemand,
    /// litd's plugin for NCCL and RCCL.
    Arrivals,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    Usable,
    /// The configuration has it switched off.
    Off,
    /// Another process, or the state of a directory, is in its way.
    Blocked,
}

impl Name {
    pub fn words(self) -> &'static str {
        match self {
            Self::HookKernels => "hook, kernels",
            Self::HookModules => "hook, modules",
            Self::KinetoOnDemand => "Kineto on demand",
            Self::Arrivals => "arrivals at collectives",
        }
    }
}

/// All ways. Which one a job takes depends on its stack as well: `off` are the profilers that did harm here.
pub(super) fn of(config: &Config, off: &[ProfilerOff]) -> Vec<Way> {
    vec![
        kernels(config, off),
        modules(),
        kineto(config),
        arrivals(config),
    ]
}

fn kernels(config: &Config, off: &[ProfilerOff]) -> Way {
    let (state, text) = match (config.core.sampling.profiler, off.len()) {
        (UseOfProfilers::Off, _) => (
            State::Off,
            "sampling.profiler = \"off\" in litd.toml; without that line torch's profiler records every kernel, which \
             the model law and the diagnosis need"
                .to_owned(),
        ),
        (UseOfProfilers::Auto, off) => {
            let but = match off {
                0 => String::new(),
                1 => "; not on the stack below, which takes the next way".to_owned(),
                _ => format!("; not on the {off} stacks below, which take the next way"),
            };
            (
                State::Usable,
                format!(
                    "two lines in the training script, `import litd` and `litd.attach()`: every kernel of one iteration in \
                     ten; litd observes, finds stragglers and steers{but}"
                ),
            )
        }
    };
    Way {
        name: Name::HookKernels,
        state,
        text,
    }
}

fn modules() -> Way {
    Way {
        name: Name::HookModules,
        state: State::Usable,
        text: "the same two lines, where no profiler may be used: who waits for whom, and not whose clock is slow; litd \
               steers by the paper's law"
            .to_owned(),
    }
}

fn kineto(config: &Config) -> Way {
    let set = &config.shell.attach;
    let owner = attach::owner(&config.shell.hardware.proc);
    let is_litds = |owner: &String| owner.ends_with("(litd)");
    let blocked = owner.filter(|owner| !is_litds(owner));
    let gives = match set.kineto_samples {
        true => format!(
            "jobs whose scripts know nothing of litd record their kernels every {:.0} s; litd observes and steers them by \
             that, which takes 5 to 12 s a trace; what recording costs no real GPU has shown",
            set.kineto_every_seconds
        ),
        false => "traces for `litctl analyze` of jobs whose scripts know nothing of litd; litd steers by them only with \
                  `attach.kineto_samples = true`"
            .to_owned(),
    };
    let (state, text) = match (set.kineto, set.dynolog, blocked) {
        (true, Some(port), _) => {
            let how = "`KINETO_USE_DAEMON=1` in a job's environment, through dynolog";
            match ports::listener(&config.shell.hardware.proc, port) {
                Some(uid) => (
                    State::Usable,
                    format!("{how} (a process of user {uid} listens at {port}): {gives}"),
                ),
                None => (
                    State::Blocked,
                    format!(
                        "nobody listens at {port} (attach.dynolog); once dynolog does, {how}: {gives}"
                    ),
                ),
            }
        }
        (_, _, Some(owner)) => (
            State::Blocked,
            format!(
                "{owner} has the name @dynolog, to which PyTorch's client turns; if it is dynolog, \
                 `attach.dynolog = \"127.0.0.1:1778\"` in litd.toml has litd ask it: {gives}"
            ),
        ),
        (false, _, None) => (
            State::Off,
            format!("`attach.kineto = true` in litd.toml, and a restart: {gives}"),
        ),
        (true, None, None) => {
            let then = match set.kineto_samples {
                true => "",
                false => ", then `litctl trace`",
            };
            let how = format!("`KINETO_USE_DAEMON=1` in a job's environment{then}");
            (State::Usable, format!("{how}: {gives}"))
        }
    };
    let directory = set.kineto_directory.as_deref().filter(|_| set.kineto);
    let text = match directory.and_then(attach::directory_trouble) {
        Some(trouble) => format!("{text}; no pods: {trouble}"),
        None => text,
    };
    Way {
        name: Name::KinetoOnDemand,
        state,
        text,
    }
}

/// What jobs set in their environments is the administrator's directory, so only that is looked at here.
fn arrivals(config: &Config) -> Way {
    let gives = "who waits for whom at the collectives of jobs whose scripts know nothing of litd, all the time; litd \
                 observes and steers them by the paper's law; NCCL's own part of it makes small collectives up to 13 % \
                 longer, and no real GPU has shown any of it";
    let (state, text) = match &config.shell.attach.nccl_directory {
        None => (
            State::Off,
            format!(
                "`attach.nccl_directory = \"/run/litd-nccl\"` in litd.toml, a directory of root's in shared memory \
                 with mode 1777, and a restart: {gives}"
            ),
        ),
        Some(directory) => {
            let name = directory.display();
            let how = format!(
                "`NCCL_PROFILER_PLUGIN=/path/to/liblitd_nccl.so` and `LITD_NCCL_DIRECTORY={name}` in a job's \
                 environment"
            );
            match attach::rings_trouble(directory) {
                Some(trouble) => (State::Blocked, format!("{trouble}; then {how}: {gives}")),
                None => (State::Usable, format!("{how}: {gives}")),
            }
        }
    };
    Way {
        name: Name::Arrivals,
        state,
        text,
    }
}
