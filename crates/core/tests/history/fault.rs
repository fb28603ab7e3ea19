//! Kinds of faults, and in how many histories each occurred.

macro_rules! faults {
    ($($name:ident $text:literal,)*) => {
        /// A kind of fault, or of interference.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Fault { $($name,)* }

        impl Fault {
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

faults! {
    RefusedWrite "a device refuses a write",
    Lie "a device reports success and changes nothing",
    Overshoot "a device holds more or less than it was told",
    Block "a device blocks for seconds, 30 at most",
    Gone "a device disappears and comes back",
    Reset "a device is reset to its default",
    Foreign "a foreign hand at a device that litd has moved",
    NodePower "the BMC tells what the node draws",
    NodeAlarm "a power supply fails",
    ForeignIdle "a foreign hand at a device that litd has not moved",
    Rival "somebody who changes caps again and again",
    Partition "a device is reset and shared from then on",
    Brake "the power brake is pulled",
    Unsettled "power does not follow a lowered cap",
    OddSensor "sensors are NaN, negative or missing",
    Unreadable "a device is unreadable when the daemon starts",
    FlakyReads "reads fail for a while",
    NoRange "the range can't be read",
    NoHolders "the driver can't tell who holds a device",
    Hot "a device throttles",
    JobBegins "a scheduler says that a job begins",
    JobEnds "a scheduler says that a job has ended",
    OptOut "a job opts out",
    Crash "crash and restart",
    CrashInRecovery "crash within the first second of a recovery",
    CrashTwice "two crashes in a row",
    CrashBeforeWrite "crash after the journal was written, before the cap",
    TornAppend "crash within an append to the journal",
    LandAfterAll "a write that was called failed is done later all the same",
    LateLanding "a write of a dead daemon lands after the restart",
    Reboot "reboot: caps at their defaults, a new boot id",
    PowerCut "power cut: the journal's tail is lost at any byte",
    DiskFull "appends to the journal fail half way",
    DiskStuck "the journal can't be replaced",
    AuditFull "appends to the audit log fail half way",
    ReadOnly "crash with caps moved, and a disk that can only be read from then on",
    BitRot "a byte of the journal is damaged",
    Garbage "a frame of random bytes",
    Truncated "a frame is cut",
    Flood "a flood of frames",
    OldIteration "an old iteration",
    SecondHello "a second hello",
    UnknownGpu "a hello for a GPU that is not there",
    TakenGpu "a hello for another job's GPU",
    OtherUser "a hello by another user",
    NotHolder "a hello by a process that does not hold the GPU",
    HandedOn "a hello on a connection whose process has ended, and whose id is a rank's by now",
    DuplicateRank "a hello for a rank that is taken",
    NoHello "a connection that says nothing",
    UnknownName "a kernel whose name is not in the dictionary",
    Unaligned "kernels that do not fit the other ranks'",
    NeverComplete "a rank that sends no samples",
    Reconnect "a rank's connection breaks and it comes back",
    RankCrash "a rank's process dies and another takes its place",
    LateJoin "a rank joins late",
    Leave "a rank leaves",
    JobCrash "all ranks of a job die at once",
    StaleJob "nothing is heard of a job",
    BudgetLowered "the budget is lowered",
    LoweredStuck "the budget is lowered and one device takes no write",
    BudgetRaised "the budget is raised",
    BudgetInvalid "a budget that can't be",
    BudgetCleared "the budget is what the configuration says again",
    PolicyChanged "the policy is changed",
    Restore "restore",
    Resume "resume",
    Returned "a device that was let go of comes back",
    Forget "forget",
    KillSwitch "a kill switch",
    Lease "a fleet controller's lease",
    CapByHand "a cap is set by hand",
    ReloadAdjusting "the configuration is reloaded while caps move",
    ReloadLaw "the law's knobs are reloaded",
    ObserveMoved "the mode becomes observe while caps are moved",
    Clocks "a job sets a clock",
    LockAfterAll "a lock that was called failed is done later all the same",
    ClocksLowered "a cap comes down while its clock is locked",
    ClockJump "the clock jumps forward",
    StopMoving "stop while a write is under way",
    StopBlocked "stop with a device that does not answer",
    TrialBegun "a trial is begun",
    TrialStopped "a trial is stopped",
    UnwellAtStart "a device can't tell what it is, may hold or holds when the daemon starts",
    HandInside "a foreign hand inside an operation",
    ReloadAny "the configuration is reloaded with any set of keys changed",
    OddRange "a driver tells a range that can't be",
    Shrunk "a driver's highest cap is lower than what was found",
    Replaced "a part is replaced",
    Aimed "a cell of the matrix is aimed at",
    AnothersTold "a device tells what is another's",
}

impl Fault {
    /// All faults except those that have a stream of their own, and litd's own actions.
    pub fn usual() -> Vec<Self> {
        let others = [
            Self::TrialBegun,
            Self::TrialStopped,
            Self::ClocksLowered,
            Self::LandAfterAll,
            Self::LockAfterAll,
        ];
        let all = Self::ALL.iter().copied();
        let others = |it: &Self| others.contains(it) || Self::MATRIX.contains(it);
        all.filter(|fault| !others(fault) && *fault != Self::UnwellAtStart)
            .collect()
    }

    /// Faults of the matrix, drawn from a stream of their own.
    pub const MATRIX: [Self; 7] = [
        Self::Aimed,
        Self::HandInside,
        Self::ReloadAny,
        Self::OddRange,
        Self::Shrunk,
        Self::Replaced,
        Self::AnothersTold,
    ];
}

/// The faults of one history.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen(u128);

impl Seen {
    pub fn mark(&mut self, fault: Fault) {
        self.0 |= 1 << (fault as u32);
    }

    pub fn has(self, fault: Fault) -> bool {
        self.0 & (1 << (fault as u32)) != 0
    }
}
