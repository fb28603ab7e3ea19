//! The bare messages, as prost-build generates them from `ingest.proto`. Nothing is checked here
//! and memory is not bounded: [`FromHook::decode`](crate::FromHook::decode) is the way in. Tests
//! use these to write what no well-behaved hook would.
#![allow(missing_docs, clippy::all)]

// Committed, so that a build needs no generator; tests/generated.rs compares and regenerates.
include!("wire/litd.ingest.v1.rs");
