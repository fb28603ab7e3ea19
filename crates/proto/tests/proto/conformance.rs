//! `tests/data/ingest.json`: messages, their fields and their bytes, on which this crate and the
//! Python package's own encoding agree. After a change of the messages in it:
//! `LITD_REGENERATE=1 cargo test -p litd-proto --test proto conformance`.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use litd_proto::{
    Bye, Class, Directive, FromHook, Hello, Kernels, Limits, Notice, NoticeKind, Profiling,
    Refusal, RefusalCode, SetClock, Tick, ToHook, Welcome,
};
use litd_units::{Hertz, Nanos};
use serde_json::Value;

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/ingest.json")
}

fn table() -> Value {
    serde_json::from_slice(&fs::read(path()).unwrap()).unwrap()
}

/// A message of either direction.
#[derive(Debug, PartialEq)]
enum Either {
    From(FromHook),
    To(ToHook),
}

impl Either {
    fn encode(&self) -> Vec<u8> {
        match self {
            Self::From(message) => message.encode(),
            Self::To(message) => message.encode(),
        }
    }

    fn decoded(&self, bytes: &[u8]) -> Self {
        let limits = Limits::default();
        match self {
            Self::From(_) => Self::From(FromHook::decode(bytes, &limits).unwrap()),
            Self::To(_) => Self::To(ToHook::decode(bytes, &limits).unwrap()),
        }
    }
}

/// The fields of a row.
struct Row<'a>(&'a Value);

impl Row<'_> {
    fn text(&self, key: &str) -> String {
        self.0[key].as_str().unwrap().to_owned()
    }

    fn long(&self, key: &str) -> u64 {
        self.0[key].as_u64().unwrap()
    }

    fn number(&self, key: &str) -> u32 {
        u32::try_from(self.long(key)).unwrap()
    }

    fn nanos(&self, key: &str) -> Nanos {
        Nanos(i64::try_from(self.long(key)).unwrap())
    }

    fn flag(&self, key: &str) -> bool {
        self.0[key].as_bool().unwrap()
    }

    fn column<T>(&self, key: &str, of: impl Fn(u64) -> T) -> Vec<T> {
        let column = self.0[key].as_array().unwrap().iter();
        column.map(|value| of(value.as_u64().unwrap())).collect()
    }

    fn directive(&self) -> Directive {
        Directive {
            first: self.long("first"),
            period: self.long("period"),
            pause: self.flag("pause"),
        }
    }

    fn profiling(&self) -> Profiling {
        match self.text("profiling").as_str() {
            "try" => Profiling::Try,
            "wait" => Profiling::Wait,
            "safe" => Profiling::Safe,
            "off" => Profiling::Off,
            _ => Profiling::Unspecified,
        }
    }

    fn kernels(&self) -> Kernels {
        let number = |value| u32::try_from(value).unwrap();
        let nanos = |value| Nanos(i64::try_from(value).unwrap());
        let class = |value| match value {
            0 => Class::Unspecified,
            1 => Class::Computation,
            2 => Class::Communication,
            3 => Class::Copy,
            4 => Class::CommunicationInside,
            5 => Class::CommunicationOutside,
            other => panic!("class {other}"),
        };
        let names = self.0["new_names"].as_array().unwrap().iter();
        Kernels {
            iteration: self.long("iteration"),
            duration: self.nanos("duration_ns"),
            new_names: names.map(|name| name.as_str().unwrap().into()).collect(),
            name: self.column("name", number),
            stream: self.column("stream", number),
            class: self.column("kernel_class", class),
            start: self.column("start_ns", nanos),
            duration_of: self.column("kernel_duration_ns", nanos),
            shows_collectives: self.flag("shows_collectives"),
        }
    }

    fn hello(&self) -> Hello {
        let versions = self.0["versions"].as_object().unwrap().iter();
        Hello {
            protocol: self.number("protocol"),
            job: self.text("job"),
            rank: self.number("rank"),
            local_rank: self.number("local_rank"),
            world_size: self.number("world_size"),
            local_world_size: self.number("local_world_size"),
            gpu: self.text("gpu"),
            framework: self.text("framework"),
            versions: versions
                .map(|(name, version)| (name.clone(), version.as_str().unwrap().to_owned()))
                .collect(),
            group: self.text("group"),
        }
    }

    fn refusal(&self) -> Refusal {
        let code = self.text("code");
        let known = RefusalCode::ALL.into_iter();
        let wait = Nanos(i64::from(self.number("retry_after_ms")) * 1_000_000);
        Refusal {
            code: known
                .into_iter()
                .find(|known| snake(&format!("{known:?}")) == code)
                .unwrap(),
            reason: self.text("reason"),
            retry_after: Some(wait).filter(|wait| *wait > Nanos::ZERO),
        }
    }

    fn message(&self, kind: &str) -> Either {
        match kind {
            "hello" => Either::From(FromHook::Hello(self.hello())),
            "kernels" => Either::From(FromHook::Kernels(self.kernels())),
            "tick" => Either::From(FromHook::Tick(Tick {
                iteration: self.long("iteration"),
                duration: self.nanos("duration_ns"),
                profiled: self.flag("profiled"),
                overhead: self.nanos("overhead_ns"),
            })),
            "bye" => Either::From(FromHook::Bye(Bye {
                reason: self.text("reason"),
            })),
            "notice" => Either::From(FromHook::Notice(Notice {
                kind: match self.text("kind").as_str() {
                    "profiling_off" => NoticeKind::ProfilingOff,
                    "profiling_safe" => NoticeKind::ProfilingSafe,
                    _ => NoticeKind::Unspecified,
                },
                text: self.text("text"),
                samples: self.number("samples"),
            })),
            "set_clock" => {
                let megahertz = f64::from(self.number("megahertz"));
                let clock = Some(Hertz(megahertz * 1e6)).filter(|clock| clock.0 > 0.0);
                Either::From(FromHook::SetClock(SetClock { clock }))
            }
            "welcome" => Either::To(ToHook::Welcome(Welcome {
                protocol: self.number("protocol"),
                daemon: self.text("daemon"),
                directive: Row(&self.0["directive"]).directive(),
                profiling: self.profiling(),
                profiling_reason: self.text("profiling_reason"),
            })),
            "directive" => Either::To(ToHook::Directive(self.directive())),
            "refusal" => Either::To(ToHook::Refusal(self.refusal())),
            other => panic!("{other}"),
        }
    }
}

/// `NotHolder` as `not_holder`.
fn snake(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(letter.to_lowercase());
    }
    text
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

fn of_hex(hex: &Value) -> Vec<u8> {
    let digits = hex.as_str().unwrap().as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.map(byte).collect()
}

#[test]
fn all_messages_are_encoded_and_decoded_as_the_table_says() {
    let mut table = table();
    let rows = table["messages"].as_array_mut().unwrap();
    assert!(rows.len() > 20);
    let regenerate = std::env::var_os("LITD_REGENERATE").is_some();
    for row in rows {
        let message = Row(&row["message"]).message(row["kind"].as_str().unwrap());
        let bytes = message.encode();
        if regenerate {
            row["hex"] = to_hex(&bytes).into();
        }
        assert_eq!(row["hex"], to_hex(&bytes), "{message:?}");
        assert_eq!(message.decoded(&of_hex(&row["hex"])), message);
    }
    if regenerate {
        let text = serde_json::to_string_pretty(&table).unwrap() + "\n";
        fs::write(path(), text).unwrap();
    }
}

#[test]
fn what_the_table_says_is_no_message_is_none() {
    let table = table();
    let limits = Limits::default();
    for row in table["to_hook_ignored"].as_array().unwrap() {
        let decoded = ToHook::decode(&of_hex(&row["hex"]), &limits);
        assert_eq!(decoded, Ok(ToHook::Unknown), "{}", row["why"]);
    }
    for row in table["to_hook_refused"].as_array().unwrap() {
        let decoded = ToHook::decode(&of_hex(&row["hex"]), &limits);
        assert!(decoded.is_err(), "{}: {decoded:?}", row["why"]);
    }
}
