//! One event of a Kineto trace, looked at only as far as it matters.

use std::borrow::Cow;

use super::number;
use super::scan::ValueScan;

/// What an event may tell us, by its category.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Category {
    /// A kernel.
    Kernel,
    /// A copy or a fill by the driver.
    Copy,
    /// A span on the host: perhaps a mark of an iteration, or of a collective.
    Host,
    /// A span that the profiler carried over to the device: perhaps a mark of an iteration.
    Device,
    /// A call that may have launched a kernel.
    Launch,
}

impl Category {
    fn of(value: &[u8]) -> Option<Self> {
        Some(match unquoted(value) {
            b"kernel" | b"Kernel" => Self::Kernel,
            b"gpu_memcpy" | b"Memcpy" | b"gpu_memset" | b"Memset" => Self::Copy,
            b"user_annotation" | b"Operator" | b"cpu_op" => Self::Host,
            b"gpu_user_annotation" => Self::Device,
            b"cuda_runtime" | b"cuda_driver" | b"Runtime" | b"hip_runtime" | b"hip_driver"
            | b"hip_runtime_api" => Self::Launch,
            _ => return None,
        })
    }
}

/// The fields of an event that matter, as they stand in the file.
#[derive(Debug)]
pub(super) struct Event<'a> {
    pub(super) category: Category,
    pub(super) name: &'a [u8],
    pub(super) ts: Option<&'a [u8]>,
    pub(super) dur: Option<&'a [u8]>,
    pub(super) pid: Option<&'a [u8]>,
    pub(super) tid: Option<&'a [u8]>,
    pub(super) args: &'a [u8],
}

impl<'a> Event<'a> {
    /// The event, or `None` as soon as it is of no interest.
    pub(super) fn parse(text: &'a [u8]) -> Result<Option<Self>, Malformed> {
        let mut category = None;
        let mut event = Event {
            category: Category::Host,
            name: b"",
            ts: None,
            dur: None,
            pid: None,
            tid: None,
            args: b"{}",
        };
        if text.first() != Some(&b'{') {
            return Ok(None);
        }
        for field in fields(text) {
            let (key, value) = field?;
            match key {
                b"ph" if value != b"\"X\"" => return Ok(None),
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
            if category == Some(Category::Host) && !event.name.is_empty() && !event.is_mark() {
                return Ok(None);
            }
        }
        Ok(category.map(|category| Event { category, ..event }))
    }

    fn is_mark(&self) -> bool {
        self.name.starts_with(b"ProfilerStep#") || self.name == b"record_param_comms"
    }
}

/// The arguments of a kernel, a copy or a call that matter.
#[derive(Debug, Default)]
pub(super) struct Args<'a> {
    pub(super) device: Option<&'a [u8]>,
    pub(super) stream: Option<&'a [u8]>,
    pub(super) correlation: Option<&'a [u8]>,
    /// The rank that an event of a file of several ranks belongs to.
    pub(super) rank: Option<&'a [u8]>,
    /// The rank that the host's record of a collective names.
    pub(super) comms_rank: Option<&'a [u8]>,
    pub(super) collective: Option<RawCollective<'a>>,
}

/// What a kernel's arguments tell of its collective, as it stands in the file.
#[derive(Debug, Default)]
pub(super) struct RawCollective<'a> {
    pub(super) name: Option<&'a [u8]>,
    pub(super) in_elements: Option<u64>,
    pub(super) out_elements: Option<u64>,
    pub(super) group_size: Option<u32>,
    pub(super) dtype: Option<&'a [u8]>,
    pub(super) process_group: Option<&'a [u8]>,
    pub(super) ranks: Option<&'a [u8]>,
    pub(super) sequence: Option<u64>,
}

impl<'a> Args<'a> {
    pub(super) fn parse(text: &'a [u8]) -> Result<Self, Malformed> {
        let mut args = Self::default();
        for field in fields(text) {
            let (key, value) = field?;
            match key {
                b"device" => args.device = Some(unquoted(value)),
                b"stream" => args.stream = Some(unquoted(value)),
                b"correlation" => args.correlation = Some(unquoted(value)),
                b"rank" => args.rank = Some(unquoted(value)),
                b"Rank" => args.comms_rank = Some(unquoted(value)),
                b"Collective name" => args.collective().name = Some(unquoted(value)),
                b"In msg nelems" => args.collective().in_elements = number_of(value),
                b"Out msg nelems" => args.collective().out_elements = number_of(value),
                b"Group size" => args.collective().group_size = number_of(value),
                b"dtype" => args.collective().dtype = Some(unquoted(value)),
                b"Process Group Name" => args.collective().process_group = Some(unquoted(value)),
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

/// The rank and world size of `distributedInfo`.
pub(super) fn distributed_info(text: &[u8]) -> Result<(Option<u32>, Option<u32>), Malformed> {
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

/// The text breaks JSON's rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// The keys (without quotes) and values of an object's text, one level deep.
fn fields(text: &[u8]) -> impl Iterator<Item = Result<(&[u8], &[u8]), Malformed>> {
    let mut rest = text.get(1..).unwrap_or_default().trim_ascii_start();
    let mut broken = false;
    std::iter::from_fn(move || {
        if broken || rest.first() == Some(&b'}') {
            return None;
        }
        let field = take_field(&mut rest);
        broken = field.is_none();
        Some(field.ok_or(Malformed))
    })
}

/// Takes `"key": value` and the comma behind it.
fn take_field<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let key = take_value(rest)?;
    let key = key.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    *rest = rest
        .trim_ascii_start()
        .strip_prefix(b":")?
        .trim_ascii_start();
    let value = take_value(rest)?;
    *rest = rest.trim_ascii_start();
    match rest.strip_prefix(b",") {
        Some(behind) => *rest = behind.trim_ascii_start(),
        None if rest.first() == Some(&b'}') => {}
        None => return None,
    }
    Some((key, value))
}

fn take_value<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = ValueScan::default()
        .feed(rest)
        .filter(|&length| length > 0)?;
    let (value, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(value)
}

/// A string's text, or a bare word: writers put numbers in quotes now and then.
pub(super) fn unquoted(value: &[u8]) -> &[u8] {
    value
        .strip_prefix(b"\"")
        .and_then(|value| value.strip_suffix(b"\""))
        .unwrap_or(value)
}

/// A whole number; one with a fraction is none, as a rank of 1.5 is neither 1 nor 2.
pub(super) fn number_of<T: TryFrom<i64>>(value: &[u8]) -> Option<T> {
    T::try_from(number::whole(unquoted(value))?).ok()
}

/// The numbers in a list, or in a string that holds a list.
pub(super) fn ranks_of(value: &[u8]) -> Vec<u32> {
    unquoted(value)
        .split(|byte| b"[](), \t".contains(byte))
        .filter_map(number_of)
        .collect()
}

/// A string without its escapes; what is no Unicode becomes the replacement character.
pub(super) fn decoded(raw: &[u8]) -> Cow<'_, str> {
    if !raw.contains(&b'\\') {
        return String::from_utf8_lossy(raw);
    }
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let Some((&escape, behind)) = rest.split_first() else {
            break;
        };
        rest = behind;
        let plain = match escape {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'u' => take_unicode(&mut rest),
            other => {
                bytes.push(other);
                continue;
            }
        };
        bytes.extend_from_slice(plain.encode_utf8(&mut [0; 4]).as_bytes());
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

/// The character behind `\u`, which may take two escapes.
fn take_unicode(rest: &mut &[u8]) -> char {
    let Some(first) = take_hex(rest) else {
        return char::REPLACEMENT_CHARACTER;
    };
    let mut code = first;
    if (0xD800..0xDC00).contains(&first) {
        let mut ahead = rest.strip_prefix(b"\\u").unwrap_or_default();
        if let Some(second) = take_hex(&mut ahead).filter(|low| (0xDC00..0xE000).contains(low)) {
            *rest = ahead;
            code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
        }
    }
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn take_hex(rest: &mut &[u8]) -> Option<u32> {
    let (digits, behind) = rest.split_at_checked(4)?;
    let code = digits.iter().try_fold(0, |code, &digit| {
        Some(code * 16 + char::from(digit).to_digit(16)?)
    })?;
    *rest = behind;
    Some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_is_dropped_and_a_kernel_kept() {
        let operator = br#"{"ph":"X","cat":"cpu_op","name":"aten::add","ts":1,"dur":1}"#;
        assert!(Event::parse(operator).unwrap().is_none());
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

    #[test]
    fn strings_lose_their_escapes() {
        assert_eq!(
            decoded(br#"a\"b\\\/\u00e9\ud83d\ude00\n"#),
            "a\"b\\/\u{e9}\u{1F600}\n"
        );
        assert_eq!(decoded(br"\ud83d!\u12"), "\u{FFFD}!\u{FFFD}12");
    }

    #[test]
    fn process_group_ranks_are_a_list_in_a_string() {
        assert_eq!(ranks_of(br#""[0, 1, 12]""#), [0, 1, 12]);
        assert_eq!(ranks_of(b"[3,4]"), [3, 4]);
        assert_eq!(ranks_of(b"[1.5, -7, 2, ...]"), [2]);
    }
}
