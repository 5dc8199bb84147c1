//! The laws, by topic.

mod answers;
mod cancellation;
mod contents;
mod envelope;
mod headers;
mod input_rounds;
mod lifecycle;
mod progress;
mod subscriptions;

use super::{Breach, CheckContext, Law, LawLevel};

/// All laws.
pub(super) static GROUPS: &[&[Law]] = &[
    answers::LAWS,
    cancellation::LAWS,
    envelope::LAWS,
    headers::LAWS,
    progress::LAWS,
    lifecycle::LAWS,
    subscriptions::LAWS,
    input_rounds::LAWS,
    contents::LAWS,
];

type Breaches = Vec<Breach>;

const fn must(
    name: &'static str,
    page: &'static str,
    sentence: &'static str,
    check: fn(&CheckContext<'_>, &mut Breaches),
) -> Law {
    Law {
        name,
        level: LawLevel::Must,
        sentence,
        page,
        check,
    }
}

const fn should(
    name: &'static str,
    page: &'static str,
    sentence: &'static str,
    check: fn(&CheckContext<'_>, &mut Breaches),
) -> Law {
    Law {
        name,
        level: LawLevel::Should,
        sentence,
        page,
        check,
    }
}

const BASIC: &str = "2026-07-28/basic";
const CANCELLATION: &str = "2026-07-28/basic/patterns/cancellation";
const PROGRESS: &str = "2026-07-28/basic/patterns/progress";
const SUBSCRIPTIONS: &str = "2026-07-28/basic/patterns/subscriptions";
const MRTR: &str = "2026-07-28/basic/patterns/mrtr";
const STDIO: &str = "2026-07-28/basic/transports/stdio";
const HTTP: &str = "2026-07-28/basic/transports/streamable-http";
const CACHING: &str = "2026-07-28/server/utilities/caching";
const TOOLS: &str = "2026-07-28/server/tools";
const RESOURCES: &str = "2026-07-28/server/resources";
const COMPLETION: &str = "2026-07-28/server/utilities/completion";
const LOGGING: &str = "2026-07-28/server/utilities/logging";
const LEGACY_BASIC: &str = "2025-11-25/basic";
const LEGACY_LIFECYCLE: &str = "2025-11-25/basic/lifecycle";
const LEGACY_HTTP: &str = "2025-11-25/basic/transports";
