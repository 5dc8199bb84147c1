//! Parked calls with keepers, in a paused clock.

mod fake;
mod keepers;
mod notifications;
mod simulation;
mod tasks;
mod threads;
