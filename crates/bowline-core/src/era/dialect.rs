//! What each protocol version says and does: one row per version.
//!
//! This is the only place where versions are compared. Everyone else holds a `&'static Dialect` and
//! asks it for a fact, so that a new revision is a new row.

mod methods;

use std::fmt;

use bowline_types::{ErrorCode, ProtocolVersion};

/// The facts of one protocol version.
///
/// # Examples
///
/// ```
/// use bowline_core::era::Dialect;
///
/// let dialect = Dialect::of("2025-11-25").expect("a known version");
/// assert!(!dialect.is_modern());
/// assert!(dialect.knows_request("ping"));
/// assert!(!Dialect::LATEST.knows_request("ping"));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Dialect {
    /// The name of the version, a date.
    pub version: &'static str,
    /// How a client and a server get to know each other.
    pub opening: Opening,
    /// How a server gets something from the client while it works on a request.
    pub server_asks_by: ServerAsksBy,
    /// Whether a result says what it is, in `resultType`.
    pub results_are_typed: bool,
    /// The methods whose complete results carry `ttlMs` and `cacheScope`.
    pub cacheable: &'static [&'static str],
    /// The methods that may be answered by `input_required`.
    pub may_need_input: &'static [&'static str],
    /// The code that says that a resource does not exist.
    pub missing_resource: ErrorCode,
    /// The error codes that this version defines, besides those of JSON-RPC itself.
    pub error_codes: &'static [ErrorCode],
    /// Whether implementations may define codes of their own from -32020 to -32099.
    pub allows_own_error_codes: bool,
    /// Whether a server declares that it completes arguments; where it does not, it just may.
    pub completions_are_declared: bool,
    /// Whether several messages may come as one JSON array.
    pub batches: bool,
    /// What `structuredContent` of a tool's result may be.
    pub structured_content: StructuredContent,
    /// How a user may be asked.
    pub elicitation: ElicitationModes,
    /// Whether elicitation schemas have multi-select enums, titled enums, and defaults for every type.
    pub rich_forms: bool,
    /// Whether sampling has tools, and messages with several content blocks.
    pub rich_sampling: bool,
    /// Members and content blocks that later versions have and this one does not.
    pub absent: Absent,
    /// The deprecated requests and notifications.
    pub deprecated: &'static [&'static str],
    /// Where tasks stand.
    pub tasks: Tasks,
    /// How the version travels over HTTP.
    pub http: HttpFacts,
    /// The messages that exist.
    pub methods: Methods,
}

/// How a client and a server get to know each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "the two eras; a third would concern every reader"
)]
pub enum Opening {
    /// By `initialize`; both sides remember what was said.
    Handshake,
    /// Never: each request says it again.
    EveryRequest,
}

/// How a server gets something from the client while it works on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "an asker must know every way to ask"
)]
pub enum ServerAsksBy {
    /// It sends a request of its own and waits.
    Request,
    /// It answers `input_required`, and the client tries again with the answers.
    InputRequired,
}

/// What `structuredContent` of a tool's result may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a sealer must know every form there is"
)]
pub enum StructuredContent {
    /// It does not exist.
    Absent,
    /// An object.
    Object,
    /// Any JSON value.
    Any,
}

/// How a user may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "an asker must know every way to ask"
)]
pub enum ElicitationModes {
    /// Not at all.
    None,
    /// By a form.
    Form,
    /// By a form, or by sending the user to a URL.
    FormAndUrl,
}

/// Members and content blocks that later versions have and an earlier one does not. They are removed from outgoing messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Absent {
    /// Members of an `Implementation`.
    pub of_implementations: &'static [&'static str],
    /// Members of everything that can be listed: tools, prompts and their arguments, resources and their templates.
    pub of_listed: &'static [&'static str],
    /// Members of tools, besides those.
    pub of_tools: &'static [&'static str],
    /// Members of the client's capabilities.
    pub of_client_capabilities: &'static [&'static str],
    /// Members of the params of `completion/complete`.
    pub of_completions: &'static [&'static str],
    /// Members of the params of `notifications/progress`.
    pub of_progress: &'static [&'static str],
    /// Types of content blocks.
    pub blocks: &'static [&'static str],
}

/// Where tasks stand in a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tasks {
    /// They do not exist.
    None,
    /// They are an experimental part of the core.
    Core,
    /// They are an extension.
    Extension,
}

/// How a version travels over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpFacts {
    /// The shape of the transport.
    pub transport: HttpTransport,
    /// When a client sends `MCP-Protocol-Version`.
    pub version_header: VersionHeader,
    /// Whether `Mcp-Method` and its kin repeat parts of the body.
    pub mirrors_body_in_headers: bool,
    /// Whether the server may give the client an id to repeat, end by DELETE, and lose.
    pub remembers_clients: bool,
    /// Whether a client may GET a stream and go on after a lost event.
    pub resumable: bool,
    /// Whether a stream starts with an empty event that has an id, and may tell `retry`.
    pub primes_streams: bool,
    /// Whether a client that closes the response has cancelled the request.
    pub disconnect_cancels: bool,
}

/// The shape of the HTTP transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpTransport {
    /// HTTP+SSE: one endpoint to listen at, another to post to.
    TwoEndpoints,
    /// Streamable HTTP: one endpoint for everything.
    Streamable,
}

/// When a client sends `MCP-Protocol-Version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VersionHeader {
    /// Never.
    Never,
    /// On everything after `initialize`.
    AfterOpening,
    /// On everything.
    Always,
}

/// The messages of one version, those of official extensions included.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Methods {
    /// Requests from a client.
    pub client_requests: &'static [&'static str],
    /// Requests from a server.
    pub server_requests: &'static [&'static str],
    /// Notifications from a client.
    pub client_notifications: &'static [&'static str],
    /// Notifications from a server.
    pub server_notifications: &'static [&'static str],
}

impl Dialect {
    /// Every version, newest first.
    pub const ALL: &'static [&'static Self] = &[
        &V2026_07_28,
        &V2025_11_25,
        &V2025_06_18,
        &V2025_03_26,
        &V2024_11_05,
    ];

    /// The newest version.
    pub const LATEST: &'static Self = &V2026_07_28;

    /// The newest version that opens with `initialize`.
    pub const LATEST_LEGACY: &'static Self = &V2025_11_25;

    /// What an HTTP request without any sign of its version is taken for.
    pub const UNNAMED_ON_HTTP: &'static Self = &V2025_03_26;

    /// The row of a version, if there is one.
    #[must_use]
    pub fn of(version: &str) -> Option<&'static Self> {
        Self::ALL.iter().copied().find(|row| row.version == version)
    }

    /// The version's name as the vocabulary has it.
    #[must_use]
    pub fn protocol_version(&self) -> ProtocolVersion {
        self.version.into()
    }

    /// Whether each request is complete in itself.
    #[must_use]
    pub fn is_modern(&self) -> bool {
        self.opening == Opening::EveryRequest
    }

    /// Whether a client may send the request.
    #[must_use]
    pub fn knows_request(&self, method: &str) -> bool {
        self.methods.client_requests.contains(&method)
    }

    /// Whether a server may send the request.
    #[must_use]
    pub fn knows_server_request(&self, method: &str) -> bool {
        self.methods.server_requests.contains(&method)
    }

    /// Whether a client may send the notification.
    #[must_use]
    pub fn knows_notification(&self, method: &str) -> bool {
        self.methods.client_notifications.contains(&method)
    }

    /// Whether a server may send the notification.
    #[must_use]
    pub fn knows_server_notification(&self, method: &str) -> bool {
        self.methods.server_notifications.contains(&method)
    }

    /// Whether a client's request belongs to other versions but not to this one.
    ///
    /// A method that no version knows is somebody's own and is not lacking.
    #[must_use]
    pub fn lacks_request(&self, method: &str) -> bool {
        !self.knows_request(method) && Self::ALL.iter().any(|row| row.knows_request(method))
    }

    /// Whether a server's request belongs to other versions but not to this one.
    #[must_use]
    pub fn lacks_server_request(&self, method: &str) -> bool {
        !self.knows_server_request(method)
            && Self::ALL.iter().any(|row| row.knows_server_request(method))
    }

    /// Whether a server's notification belongs to other versions but not to this one.
    #[must_use]
    pub fn lacks_server_notification(&self, method: &str) -> bool {
        !self.knows_server_notification(method)
            && Self::ALL
                .iter()
                .any(|row| row.knows_server_notification(method))
    }

    /// Maps an error code to one that this version defines.
    #[must_use]
    pub fn error_code(&self, code: ErrorCode) -> ErrorCode {
        if code == ErrorCode::RESOURCE_NOT_FOUND {
            return self.missing_resource;
        }
        if self.error_codes.contains(&code) || !is_reserved(code) {
            return code;
        }
        match code {
            // The caller cannot do what the request needs.
            ErrorCode::HEADER_MISMATCH
            | ErrorCode::MISSING_CLIENT_CAPABILITY
            | ErrorCode::UNSUPPORTED_PROTOCOL_VERSION => ErrorCode::INVALID_PARAMS,
            ErrorCode::URL_ELICITATION_REQUIRED => ErrorCode::INTERNAL_ERROR,
            own if self.allows_own_error_codes => own,
            _ => ErrorCode::INTERNAL_ERROR,
        }
    }

    /// Whether complete results of a method carry `ttlMs` and `cacheScope`.
    #[must_use]
    pub fn caches(&self, method: &str) -> bool {
        self.cacheable.contains(&method)
    }

    /// Returns whether a request or notification is deprecated.
    #[must_use]
    pub fn deprecates(&self, method: &str) -> bool {
        self.deprecated.contains(&method)
    }

    /// Whether a method may be answered by `input_required`; somebody's own methods may.
    #[must_use]
    pub fn may_need_input(&self, method: &str) -> bool {
        self.may_need_input.contains(&method)
            || (self.is_modern() && !Self::ALL.iter().any(|row| row.knows_request(method)))
    }
}

/// Whether a version, known or not, belongs to the modern era.
///
/// Versions are dates, so a later one compares greater as text. What is no date belongs to no era.
///
/// # Examples
///
/// ```
/// use bowline_core::era::names_modern_era;
///
/// assert!(names_modern_era("2026-07-28"));
/// assert!(names_modern_era("2031-01-01"));
/// assert!(!names_modern_era("2025-11-25"));
/// assert!(!names_modern_era("next"));
/// ```
#[must_use]
pub fn names_modern_era(version: &str) -> bool {
    is_date(version) && version >= V2026_07_28.version
}

/// There is one row per version, so the name says it all.
impl PartialEq for Dialect {
    fn eq(&self, other: &Self) -> bool {
        self.version == other.version
    }
}

impl Eq for Dialect {}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.version)
    }
}

/// The versions that one side speaks, newest first.
///
/// # Examples
///
/// ```
/// use bowline_core::era::Dialects;
///
/// let ours = Dialects::all();
/// assert_eq!(ours.latest_modern().unwrap().version, "2026-07-28");
/// assert!(Dialects::modern().latest_legacy().is_none());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dialects(Vec<&'static Dialect>);

impl Dialects {
    /// Every version there is.
    #[must_use]
    pub fn all() -> Self {
        Self(Dialect::ALL.to_vec())
    }

    /// The versions in which each request is complete in itself.
    #[must_use]
    pub fn modern() -> Self {
        Self::only(|row| row.is_modern())
    }

    /// The versions that open with `initialize`.
    #[must_use]
    pub fn legacy() -> Self {
        Self::only(|row| !row.is_modern())
    }

    /// The versions that pass a test.
    #[must_use]
    pub fn only(keep: impl Fn(&Dialect) -> bool) -> Self {
        Self(
            Dialect::ALL
                .iter()
                .copied()
                .filter(|row| keep(row))
                .collect(),
        )
    }

    /// Those of these versions that open with `initialize`.
    #[must_use]
    pub fn without_modern(&self) -> Self {
        Self(self.iter().filter(|row| !row.is_modern()).collect())
    }

    /// The row of a version, if it is spoken.
    #[must_use]
    pub fn of(&self, version: &str) -> Option<&'static Dialect> {
        self.iter().find(|row| row.version == version)
    }

    /// The newest modern version that is spoken.
    #[must_use]
    pub fn latest_modern(&self) -> Option<&'static Dialect> {
        self.iter().find(|row| row.is_modern())
    }

    /// The newest legacy version that is spoken.
    #[must_use]
    pub fn latest_legacy(&self) -> Option<&'static Dialect> {
        self.iter().find(|row| !row.is_modern())
    }

    /// Those that are spoken, newest first.
    pub fn iter(&self) -> impl Iterator<Item = &'static Dialect> {
        self.0.iter().copied()
    }

    /// The names of the modern ones, newest first: what `-32022` tells.
    pub fn modern_versions(&self) -> impl Iterator<Item = &'static str> {
        self.iter()
            .filter(|row| row.is_modern())
            .map(|row| row.version)
    }
}

impl Default for Dialects {
    fn default() -> Self {
        Self::all()
    }
}

impl From<&'static Dialect> for Dialects {
    fn from(only: &'static Dialect) -> Self {
        Self(vec![only])
    }
}

/// Returns whether 2026-07-28 reserves the code for the specification.
fn is_reserved(code: ErrorCode) -> bool {
    (-32_099..=-32_020).contains(&code.0)
}

fn is_date(text: &str) -> bool {
    text.len() == 10
        && text.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}

// The first legacy row is told in full, the later ones by what they changed in the one before.

static V2026_07_28: Dialect = Dialect {
    version: "2026-07-28",
    opening: Opening::EveryRequest,
    server_asks_by: ServerAsksBy::InputRequired,
    results_are_typed: true,
    cacheable: &[
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    ],
    may_need_input: &["tools/call", "prompts/get", "resources/read"],
    missing_resource: ErrorCode::INVALID_PARAMS,
    error_codes: &[
        ErrorCode::HEADER_MISMATCH,
        ErrorCode::MISSING_CLIENT_CAPABILITY,
        ErrorCode::UNSUPPORTED_PROTOCOL_VERSION,
    ],
    allows_own_error_codes: false,
    completions_are_declared: true,
    batches: false,
    structured_content: StructuredContent::Any,
    elicitation: ElicitationModes::FormAndUrl,
    rich_forms: true,
    rich_sampling: true,
    absent: Absent {
        of_implementations: &[],
        of_listed: &[],
        of_tools: &["execution"],
        of_client_capabilities: &["tasks"],
        of_completions: &[],
        of_progress: &[],
        blocks: &[],
    },
    deprecated: &[
        "sampling/createMessage",
        "roots/list",
        "notifications/message",
    ],
    tasks: Tasks::Extension,
    http: HttpFacts {
        transport: HttpTransport::Streamable,
        version_header: VersionHeader::Always,
        mirrors_body_in_headers: true,
        remembers_clients: false,
        resumable: false,
        primes_streams: false,
        disconnect_cancels: true,
    },
    methods: methods::V2026_07_28,
};

static V2025_11_25: Dialect = Dialect {
    version: "2025-11-25",
    error_codes: &[
        ErrorCode::RESOURCE_NOT_FOUND,
        ErrorCode::URL_ELICITATION_REQUIRED,
    ],
    elicitation: ElicitationModes::FormAndUrl,
    rich_forms: true,
    rich_sampling: true,
    absent: Absent {
        of_implementations: &[],
        of_listed: &[],
        of_tools: &[],
        of_client_capabilities: &[],
        ..V2025_06_18.absent
    },
    tasks: Tasks::Core,
    http: HttpFacts {
        primes_streams: true,
        ..V2025_06_18.http
    },
    methods: methods::V2025_11_25,
    ..V2025_06_18
};

static V2025_06_18: Dialect = Dialect {
    version: "2025-06-18",
    batches: false,
    structured_content: StructuredContent::Object,
    elicitation: ElicitationModes::Form,
    absent: Absent {
        of_implementations: &["icons", "description", "websiteUrl"],
        of_listed: &["icons"],
        of_tools: &["execution"],
        of_client_capabilities: &["tasks"],
        of_completions: &[],
        blocks: &[],
        ..V2025_03_26.absent
    },
    http: HttpFacts {
        version_header: VersionHeader::AfterOpening,
        ..V2025_03_26.http
    },
    methods: methods::V2025_06_18,
    ..V2025_03_26
};

static V2025_03_26: Dialect = Dialect {
    version: "2025-03-26",
    completions_are_declared: true,
    batches: true,
    absent: Absent {
        of_tools: &["execution"],
        of_progress: &[],
        blocks: &["resource_link"],
        ..V2024_11_05.absent
    },
    http: HttpFacts {
        transport: HttpTransport::Streamable,
        remembers_clients: true,
        resumable: true,
        ..V2024_11_05.http
    },
    ..V2024_11_05
};

static V2024_11_05: Dialect = Dialect {
    version: "2024-11-05",
    opening: Opening::Handshake,
    server_asks_by: ServerAsksBy::Request,
    results_are_typed: false,
    cacheable: &[],
    may_need_input: &[],
    missing_resource: ErrorCode::RESOURCE_NOT_FOUND,
    error_codes: &[ErrorCode::RESOURCE_NOT_FOUND],
    allows_own_error_codes: true,
    completions_are_declared: false,
    batches: false,
    structured_content: StructuredContent::Absent,
    elicitation: ElicitationModes::None,
    rich_forms: false,
    rich_sampling: false,
    absent: Absent {
        of_implementations: &["title", "icons", "description", "websiteUrl"],
        of_listed: &["title", "icons", "_meta"],
        of_tools: &["execution", "annotations"],
        of_client_capabilities: &["elicitation", "tasks"],
        of_completions: &["context"],
        of_progress: &["message"],
        blocks: &["audio", "resource_link"],
    },
    deprecated: &[],
    tasks: Tasks::None,
    http: HttpFacts {
        transport: HttpTransport::TwoEndpoints,
        version_header: VersionHeader::Never,
        mirrors_body_in_headers: false,
        remembers_clients: false,
        resumable: false,
        primes_streams: false,
        disconnect_cancels: false,
    },
    methods: methods::V2024_11_05,
};

#[cfg(test)]
mod tests;
