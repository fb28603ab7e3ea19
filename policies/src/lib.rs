//! Laws, envelope and state machine.
