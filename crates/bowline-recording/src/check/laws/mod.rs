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

use super::{Breach, CheckContext, Edition, Law, LawLevel};

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
        edition: Edition::Latest,
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
        edition: Edition::Latest,
        check,
    }
}

/// A law of the legacy era, which the latest edition does not contain.
const fn legacy(law: Law) -> Law {
    Law {
        edition: Edition::LatestLegacy,
        ..law
    }
}

const BASIC: &str = "basic";
const CANCELLATION: &str = "basic/patterns/cancellation";
const PROGRESS: &str = "basic/patterns/progress";
const SUBSCRIPTIONS: &str = "basic/patterns/subscriptions";
const MRTR: &str = "basic/patterns/mrtr";
const STDIO: &str = "basic/transports/stdio";
const HTTP: &str = "basic/transports/streamable-http";
const CACHING: &str = "server/utilities/caching";
const TOOLS: &str = "server/tools";
const RESOURCES: &str = "server/resources";
const COMPLETION: &str = "server/utilities/completion";
const LOGGING: &str = "server/utilities/logging";
const LEGACY_LIFECYCLE: &str = "basic/lifecycle";
const LEGACY_HTTP: &str = "basic/transports";
const LEGACY_CANCELLATION: &str = "basic/utilities/cancellation";
