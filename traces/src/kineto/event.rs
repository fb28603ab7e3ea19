//! One event of a Kineto trace, looked at only as far as it matters.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::json::text::{Malformed, fields, number_of, unquoted};

/// The category of arrows from a call of the host to what it launched, in rocmProfileData's files.
const ARROWS: &[u8] = b"\"api_op\"";

/// How the mark of an optimizer's step begins, which PyTorch makes by itself.
pub(crate) const STEP: &[u8] = b"Optimizer.step#";

/// What an event may tell us, by its category.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Category<'a> {
    /// A kernel.
    Kernel,
    /// A copy or a fill by the driver.
    Copy,
    /// A span on the host: perhaps a mark of an iteration, or of a collective.
    Host,
    /// The call of an operator.
    Operator,
    /// A span that the profiler carried over to the device: perhaps a mark of an iteration.
    Device,
    /// A call that may have launched a kernel.
    Launch,
    /// A call of the host in a file that has no categories.
    Call,
    /// Where an arrow from a call to what it launched begins, or ends.
    Arrow { begins: bool },
    /// Work of a device that is no GPU, and its category.
    Other(&'a [u8]),
}

impl<'a> Category<'a> {
    fn of(value: &'a [u8]) -> Option<Self> {
        Some(match unquoted(value) {
            b"kernel" | b"Kernel" => Self::Kernel,
            b"gpu_memcpy" | b"Memcpy" | b"gpu_memset" | b"Memset" => Self::Copy,
            b"user_annotation" => Self::Host,
            b"Operator" | b"cpu_op" => Self::Operator,
            b"gpu_user_annotation" => Self::Device,
            b"cuda_runtime" | b"cuda_driver" | b"Runtime" | b"hip_runtime" | b"hip_driver"
            | b"hip_runtime_api" => Self::Launch,
            b"hpu_op" => Self::Other(unquoted(value)),
            other if other.starts_with(b"mtia_") => Self::Other(other),
            _ => return None,
        })
    }
}

/// The fields of an event that matter, as they stand in the file.
#[derive(Debug)]
pub(crate) struct Event<'a> {
    pub(crate) category: Category<'a>,
    pub(crate) name: &'a [u8],
    pub(crate) ts: Option<&'a [u8]>,
    pub(crate) dur: Option<&'a [u8]>,
    pub(crate) pid: Option<&'a [u8]>,
    pub(crate) tid: Option<&'a [u8]>,
    pub(crate) args: &'a [u8],
    /// The number of an operator's call.
    pub(crate) external_id: Option<u32>,
    /// The number of an arrow.
    pub(crate) id: Option<&'a [u8]>,
    /// Whether its arguments tell the category, for lack of another.
    pub(crate) described: bool,
}

impl<'a> Event<'a> {
    /// The event, or `None` as soon as it is of no interest.
    pub(crate) fn parse(text: &'a [u8]) -> Result<Option<Self>, Malformed> {
        let mut category = None;
        let mut event = Event {
            category: Category::Host,
            name: b"",
            ts: None,
            dur: None,
            pid: None,
            tid: None,
            args: b"{}",
            external_id: None,
            id: None,
            described: false,
        };
        let mut arrow = None;
        if text.first() != Some(&b'{') {
            return Ok(None);
        }
        for field in fields(text) {
            let (key, value) = field?;
            match key {
                b"ph" => match value {
                    b"\"X\"" => {}
                    b"\"s\"" | b"\"f\"" if is_arrow(text) => {
                        arrow = Some(Category::Arrow {
                            begins: value == b"\"s\"",
                        });
                    }
                    _ => return Ok(None),
                },
                b"cat" if value == ARROWS => {}
                b"id" => event.id = Some(unquoted(value)),
                b"cat" => {
                    category = Category::of(value);
                    if category.is_none() {
                        return Ok(None);
                    }
                }
                b"name" => event.name = unquoted(value),
                b"ts" => event.ts = Some(unquoted(value)),
                b"dur" => event.dur = Some(unquoted(value)),
                b"pid" => event.pid = Some(unquoted(value)),
                b"tid" => event.tid = Some(unquoted(value)),
                b"args" if value.first() == Some(&b'{') => event.args = value,
                _ => {}
            }
            // Most spans on the host are operators: their names tell, and come early.
            if event.name.is_empty() || event.is_mark() {
                continue;
            }
            match category {
                Some(Category::Host) if !event.name.starts_with(STEP) => return Ok(None),
                // Of these nothing else is asked; their arguments are the longest part.
                Some(Category::Operator) if event.has_place() => break,
                _ => {}
            }
        }
        if category == Some(Category::Operator) {
            match event.is_mark() {
                true => category = Some(Category::Host),
                false => event.external_id = external_id(text),
            }
        }
        if category.is_none() && arrow.is_none() {
            // rocmProfileData's converter has no categories; a description in the arguments tells.
            category = described(event.args);
            event.described = true;
        }
        let category = category.or(arrow);
        Ok(category.map(|category| Event { category, ..event }))
    }

    fn is_mark(&self) -> bool {
        self.name.starts_with(b"ProfilerStep#") || self.name == b"record_param_comms"
    }

    /// Whether it is known where and when it ran.
    fn has_place(&self) -> bool {
        let fields = [self.ts, self.dur, self.pid, self.tid];
        fields.iter().all(Option::is_some)
    }
}

/// Whether an event is an arrow from a call to what it launched. Kineto's own are of another category, and
/// tell what its correlations tell.
fn is_arrow(event: &[u8]) -> bool {
    static FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(ARROWS));
    FINDER.find(event).is_some()
}

/// The number of an operator's call, for which the rest of its event need not be taken apart: within
/// a text the quotation mark behind such a key would be escaped.
fn external_id(event: &[u8]) -> Option<u32> {
    const KEY: &[u8] = b"xternal id\":";
    static FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(KEY));
    let at = FINDER.find(event)?;
    let value = event.get(at + KEY.len()..)?.trim_ascii_start();
    let end = value.iter().position(|byte| !byte.is_ascii_digit());
    number_of(value.get(..end?)?)
}

/// The category that `args.desc` tells.
fn described(args: &[u8]) -> Option<Category<'static>> {
    let fields = fields(args).map_while(Result::ok);
    let mut fields = fields.filter(|(key, _)| *key == b"desc");
    let description = unquoted(fields.next()?.1);
    match description {
        // A task is a kernel that a HIP graph launched.
        b"KernelExecution" | b"Task" => Some(Category::Kernel),
        _ if description.starts_with(b"Copy") || description.starts_with(b"Fill") => {
            Some(Category::Copy)
        }
        _ => Some(Category::Call),
    }
}

/// The arguments of a kernel, a copy or a call that matter.
#[derive(Debug, Default)]
pub(crate) struct Args<'a> {
    pub(crate) device: Option<&'a [u8]>,
    pub(crate) stream: Option<&'a [u8]>,
    pub(crate) correlation: Option<&'a [u8]>,
    /// The number of the operator's call that launched it.
    pub(crate) external_id: Option<u32>,
    /// The rank that an event of a file of several ranks belongs to.
    pub(crate) rank: Option<&'a [u8]>,
    /// The rank that the host's record of a collective names.
    pub(crate) comms_rank: Option<&'a [u8]>,
    pub(crate) collective: Option<RawCollective<'a>>,
    /// How many blocks of threads it has.
    pub(crate) blocks: Option<u64>,
}

/// What a kernel's arguments tell of its collective, as it stands in the file.
#[derive(Debug, Default)]
pub(crate) struct RawCollective<'a> {
    pub(crate) name: Option<&'a [u8]>,
    pub(crate) in_elements: Option<u64>,
    pub(crate) out_elements: Option<u64>,
    pub(crate) group_size: Option<u32>,
    pub(crate) dtype: Option<&'a [u8]>,
    pub(crate) process_group: Option<&'a [u8]>,
    pub(crate) description: Option<&'a [u8]>,
    pub(crate) peer: Option<u32>,
    pub(crate) ranks: Option<&'a [u8]>,
    pub(crate) sequence: Option<u64>,
}

impl<'a> Args<'a> {
    pub(crate) fn parse(text: &'a [u8]) -> Result<Self, Malformed> {
        let mut args = Self::default();
        for field in fields(text) {
            let (key, value) = field?;
            match key {
                b"device" => args.device = Some(unquoted(value)),
                b"stream" => args.stream = Some(unquoted(value)),
                b"correlation" => args.correlation = Some(unquoted(value)),
                b"External id" | b"external id" => args.external_id = number_of(value),
                b"rank" => args.rank = Some(unquoted(value)),
                b"Rank" => args.comms_rank = Some(unquoted(value)),
                b"grid" => args.blocks = blocks(value),
                b"Collective name" => args.collective().name = Some(unquoted(value)),
                b"In msg nelems" => args.collective().in_elements = number_of(value),
                b"Out msg nelems" => args.collective().out_elements = number_of(value),
                b"Group size" => args.collective().group_size = number_of(value),
                b"dtype" => args.collective().dtype = Some(unquoted(value)),
                b"Process Group Name" => args.collective().process_group = Some(unquoted(value)),
                b"Process Group Description" => {
                    args.collective().description = Some(unquoted(value));
                }
                b"Src Rank" | b"Dst Rank" => args.collective().peer = number_of(value),
                b"Process Group Ranks" => args.collective().ranks = Some(value),
                b"Seq" => args.collective().sequence = number_of(value),
                _ => {}
            }
        }
        Ok(args)
    }

    fn collective(&mut self) -> &mut RawCollective<'a> {
        self.collective.get_or_insert_default()
    }
}

/// How many blocks a grid has.
fn blocks(grid: &[u8]) -> Option<u64> {
    let sides = unquoted(grid).split(|byte| b"[](), \t".contains(byte));
    let sides = sides.filter_map(number_of::<u64>).map(Some);
    let blocks = sides.reduce(|a, b| a?.checked_mul(b?))??;
    (blocks > 0).then_some(blocks)
}

/// The rank and world size of `distributedInfo`.
pub(crate) fn distributed_info(text: &[u8]) -> Result<(Option<u32>, Option<u32>), Malformed> {
    let (mut rank, mut world_size) = (None, None);
    if text.first() == Some(&b'{') {
        for field in fields(text) {
            let (key, value) = field?;
            match key {
                b"rank" => rank = number_of(value),
                b"world_size" => world_size = number_of(value),
                _ => {}
            }
        }
    }
    Ok((rank, world_size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_and_kernels_are_kept() {
        let operator = br#"{"ph":"X","cat":"cpu_op","args":{"dur":9},"name":"aten::add","ts":1,"dur":2,"pid":3,"tid":4}"#;
        let event = Event::parse(operator).unwrap().unwrap();
        let place = [event.ts, event.dur, event.pid, event.tid];
        assert_eq!(place, [b"1", b"2", b"3", b"4"].map(|text| Some(&text[..])));
        assert_eq!(
            (event.category, event.external_id),
            (Category::Operator, None)
        );
        let other = br#"{"ph":"X","cat":"python_function","name":"forward","ts":1,"dur":1}"#;
        assert!(Event::parse(other).unwrap().is_none());
        let numbered = br#"{"ph":"X","cat":"cpu_op","name":"aten::add","ts":1,"args":{"Note":"External id\":9","External id": 7}}"#;
        let event = Event::parse(numbered).unwrap().unwrap();
        assert_eq!(
            (event.category, event.external_id),
            (Category::Operator, Some(7))
        );
        let kernel = br#"{"cat":"kernel","ts":"1.5","args":{"a":[1,{"device":9}],"device":3},"ph":"X","name":"k"}"#;
        let event = Event::parse(kernel).unwrap().unwrap();
        assert_eq!(event.ts, Some(&b"1.5"[..]));
        assert_eq!(Args::parse(event.args).unwrap().device, Some(&b"3"[..]));
    }

    #[test]
    fn text_that_is_no_object_is_refused() {
        for broken in [
            &br#"{"cat" "kernel"}"#[..],
            br#"{"ph":"X",,}"#,
            br#"{cat:1}"#,
        ] {
            assert!(Event::parse(broken).is_err());
        }
    }
}
