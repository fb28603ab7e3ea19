//! Providers of carbon intensity and of prices, as their documentation and recorded answers say that they behave.
//!
//! The stubs were written from the providers' public documentation and from answers recorded by others, before their
//! author had read litctl's clients of carbon intensity; the clients of prices are by the same author, after their
//! stubs. Of what [`Twist`] does, how old is old, which unit is wrong and when an old forecast was generated were changed
//! once the clients had been seen. Each file names what it was written from. What the documentation leaves
//! open (the text of an error, for example) no test depends on.

pub mod carbon_aware;
pub mod electricity_maps;
pub mod energy_charts;
pub mod octopus;
pub mod uk;
pub mod watttime;

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

/// A request as a provider sees it.
#[derive(Debug, Clone)]
pub struct Request {
    pub path: String,
    pub query: Vec<(String, String)>,
    pub headers: Vec<(String, String)>,
}

impl Request {
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// A provider's answer.
pub struct Reply {
    pub status: u16,
    pub kind: &'static str,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn json(status: u16, body: &Value) -> Self {
        Self {
            status,
            kind: "application/json; charset=utf-8",
            headers: Vec::new(),
            body: body.to_string().into_bytes(),
        }
    }

    pub fn text(status: u16, body: &str) -> Self {
        Self {
            status,
            kind: "text/plain; charset=utf-8",
            headers: Vec::new(),
            body: body.as_bytes().to_vec(),
        }
    }
}

/// Faults between a provider and its client, the same for all providers.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    None,
    /// 429, with the value of Retry-After where one is sent.
    Limited(Option<String>),
    /// 403 in plain text.
    Forbidden,
    /// 503 with a page for people.
    Down,
    /// The answer begins only after that time.
    Slow(Duration),
    /// Sends a byte each so often: no read ever waits long.
    Drip(Duration),
    /// The connection closes in the middle of the body that Content-Length announced.
    Cut,
    /// The connection closes in the middle of a chunk.
    CutChunk,
    /// 200 without a body.
    Empty,
    /// 200 with the login page of the network in between.
    Portal,
    /// The connection closes before any byte.
    Hangup,
    /// A redirect to another host, as a captive network does.
    Redirect,
}

/// Mistakes in an answer that is otherwise whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Twist {
    None,
    /// Of another zone than was asked for.
    WrongZone,
    /// No points.
    NoPoints,
    /// Every other value is null.
    SomeNull,
    /// Every value is null.
    AllNull,
    /// Six points are missing in the middle.
    Gap,
    /// A point comes twice, with another value the second time.
    Twice,
    /// The times run backwards from the middle on, as where a clock was set back.
    Backwards,
    /// The whole answer is three days old.
    Old,
    /// In another unit, where the answer names its unit.
    WrongUnit,
    /// Numbers below zero.
    Negative,
    /// Numbers as strings.
    Strings,
    /// Numbers that no grid has.
    Absurd,
}

/// A provider that serves on a port of its own.
pub struct Provider {
    pub address: String,
    asked: Arc<Mutex<Vec<Request>>>,
    fault: Arc<Mutex<Fault>>,
    twist: Arc<Mutex<Twist>>,
}

impl Provider {
    pub fn new(answer: impl Fn(&Request, Twist) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let provider = Self {
            address: format!("http://{}", listener.local_addr().unwrap()),
            asked: Arc::default(),
            fault: Arc::new(Mutex::new(Fault::None)),
            twist: Arc::new(Mutex::new(Twist::None)),
        };
        let (asked, fault) = (Arc::clone(&provider.asked), Arc::clone(&provider.fault));
        let (twist, answer) = (Arc::clone(&provider.twist), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (asked, fault) = (Arc::clone(&asked), Arc::clone(&fault));
                let (twist, answer) = (Arc::clone(&twist), Arc::clone(&answer));
                thread::spawn(move || {
                    let mut stream = stream;
                    let Some(request) = read(&stream) else { return };
                    asked.lock().unwrap().push(request.clone());
                    let (fault, twist) = (fault.lock().unwrap().clone(), *twist.lock().unwrap());
                    // A client that has gone away is no fault of the provider's.
                    let _ = write(&mut stream, &fault, || answer(&request, twist));
                });
            }
        });
        provider
    }

    pub fn asked(&self) -> Vec<Request> {
        self.asked.lock().unwrap().clone()
    }

    pub fn breaks(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
    }

    pub fn twists(&self, twist: Twist) {
        *self.twist.lock().unwrap() = twist;
    }
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream);
    let mut first = String::new();
    lines.read_line(&mut first).ok()?;
    let mut words = first.split_whitespace();
    let target = words.nth(1)?.to_owned();
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line).ok()? == 0 || line.trim().is_empty() {
            break;
        }
        let (key, value) = line.split_once(':')?;
        headers.push((key.trim().to_owned(), value.trim().to_owned()));
    }
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    Some(Request {
        path: decoded(path),
        query: pairs
            .map(|(key, value)| (decoded(key), decoded(value)))
            .collect(),
        headers,
    })
}

/// Percent-encoding undone, and + for a space in a query.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digits = [rest.next().unwrap_or(b'0'), rest.next().unwrap_or(b'0')];
                let digits = std::str::from_utf8(&digits).unwrap_or("00").to_owned();
                bytes.push(u8::from_str_radix(&digits, 16).unwrap_or(b'?'));
            }
            b'+' => bytes.push(b' '),
            other => bytes.push(other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn write(
    stream: &mut TcpStream,
    fault: &Fault,
    answer: impl FnOnce() -> Reply,
) -> std::io::Result<()> {
    let reply = match fault {
        Fault::Limited(after) => {
            let mut reply = Reply::text(429, "Too Many Requests");
            let after = after
                .iter()
                .map(|after| ("Retry-After".to_owned(), after.clone()));
            reply.headers = after.collect();
            reply
        }
        Fault::Forbidden => Reply::text(403, "Access denied"),
        Fault::Down => html(
            503,
            "<html><body><h1>503 Service Temporarily Unavailable</h1></body></html>",
        ),
        Fault::Portal => html(
            200,
            "<!DOCTYPE html><html><title>Sign in to the network</title></html>",
        ),
        Fault::Empty => Reply::text(200, ""),
        Fault::Redirect => {
            let mut reply = Reply::text(302, "");
            reply.headers = vec![("Location".to_owned(), "http://portal.invalid/".to_owned())];
            reply
        }
        Fault::Hangup => return Ok(()),
        Fault::Slow(time) => {
            thread::sleep(*time);
            answer()
        }
        Fault::None | Fault::Drip(_) | Fault::Cut | Fault::CutChunk => answer(),
    };
    let mut head = format!("HTTP/1.1 {} {}\r\n", reply.status, reason(reply.status));
    head += &format!("Content-Type: {}\r\nConnection: close\r\n", reply.kind);
    for (key, value) in &reply.headers {
        head += &format!("{key}: {value}\r\n");
    }
    if *fault == Fault::CutChunk {
        let half = &reply.body[..reply.body.len() / 2];
        head += "Transfer-Encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes())?;
        stream.write_all(format!("{:x}\r\n", reply.body.len()).as_bytes())?;
        return stream.write_all(half);
    }
    head += &format!("Content-Length: {}\r\n\r\n", reply.body.len());
    match fault {
        Fault::Cut => {
            stream.write_all(head.as_bytes())?;
            stream.write_all(&reply.body[..reply.body.len() / 2])
        }
        Fault::Drip(pause) => {
            let whole = [head.as_bytes(), &reply.body].concat();
            for byte in whole {
                stream.write_all(&[byte])?;
                thread::sleep(*pause);
            }
            Ok(())
        }
        _ => stream.write_all(&[head.as_bytes(), &reply.body].concat()),
    }
}

fn html(status: u16, page: &str) -> Reply {
    Reply {
        kind: "text/html",
        ..Reply::text(status, page)
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        302 => "Found",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        429 => "Too Many Requests",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ => "Unknown",
    }
}

/// The step's start that a time lies in.
pub fn floor(time: Timestamp, step: i64) -> Timestamp {
    let second = time.as_second();
    Timestamp::from_second(second - second.rem_euclid(step)).unwrap()
}

/// The intensity of a grid's day here, by the hour of the day in UTC: from 100 at midnight to 330 at 23 h.
pub fn day(time: Timestamp) -> f64 {
    let hour = time.as_second().rem_euclid(86_400) / 3_600;
    100.0 + 10.0 * hour as f64
}

/// Points from a start on, every so many seconds, with what a twist makes of them. None: null.
pub fn points(
    start: Timestamp,
    step: i64,
    count: usize,
    twist: Twist,
) -> Vec<(Timestamp, Option<f64>)> {
    let start = match twist {
        Twist::Old => start.as_second() - 3 * 86_400,
        _ => start.as_second(),
    };
    let count = if twist == Twist::NoPoints { 0 } else { count };
    let at = |index: usize| Timestamp::from_second(start + step * index as i64).unwrap();
    let plain = (0..count).map(|index| (at(index), Some(day(at(index)))));
    let mut points: Vec<_> = plain.collect();
    let middle = points.len() / 2;
    match twist {
        Twist::SomeNull => points
            .iter_mut()
            .skip(1)
            .step_by(2)
            .for_each(|point| point.1 = None),
        Twist::AllNull => points.iter_mut().for_each(|point| point.1 = None),
        Twist::Gap => drop(points.drain(middle..(middle + 6).min(count))),
        Twist::Twice => points.insert(middle + 1, (at(middle), Some(777.0))),
        Twist::Backwards => points[middle..].reverse(),
        Twist::Negative => points
            .iter_mut()
            .for_each(|point| point.1 = point.1.map(|value| -value)),
        Twist::Absurd => points.iter_mut().for_each(|point| point.1 = Some(1e12)),
        _ => {}
    }
    points
}

/// A value as an answer has it.
pub fn number(value: Option<f64>, twist: Twist) -> Value {
    match value {
        Some(value) if twist == Twist::Strings => Value::from(value.to_string()),
        Some(value) => Value::from(value),
        None => Value::Null,
    }
}
