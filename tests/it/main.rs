//! Integration tests: one binary, a module for each subject.

mod cli;
mod shipping;
