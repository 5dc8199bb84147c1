//! Parked calls: a legacy upstream asks a question in the middle of a call of a modern client.
//!
//! A modern client gets an `input_required` result and retries with the answers. The upstream's call must neither be
//! repeated nor cancelled in between, so it is *parked*: a keeper owns it while no client waits.
//!
//! ```text
//!  client ── tools/call ────────▶ front ── tools/call ───────────▶ upstream
//!         ◀─ input_required ────    │   ◀─ elicitation/create ────
//!                                   ▼
//!                                 keeper      (the running call)
//!                                   │
//!         ── tools/call, answers ─▶ ▼
//!                                 front ── the answer ───────────▶
//!         ◀─ result ────────────        ◀─ result ────────────────
//! ```
//!
//! The running call has one owner at any time: a front, a keeper, the channel between them, or the runner of a task
//! (`task.rs`). Each of them cancels the call when it is dropped.

mod budget;

mod call;
pub(crate) use call::Call;

mod calls;
pub(crate) use calls::{ParkedCalls, Resumed};

mod entry;

mod host_side;
pub(crate) use host_side::HostSide;

mod keeper;

mod kept_notifications;
pub(crate) use kept_notifications::KeptNotifications;

mod refusal;

mod retry;
pub(crate) use retry::Retry;

mod sealed_state;

mod settings;
pub(crate) use settings::ParkSettings;

mod shared;

mod table;

mod task;
pub(crate) use task::{CreatedTask, ParkedTask, TaskState, TaskView};

mod task_records;
pub(crate) use task_records::TaskTimes;

mod tombstones;

mod upstream;
pub(crate) use upstream::Upstream;

#[cfg(test)]
mod tests;
