//! [`Dialect`]: a table of the differences between protocol versions, with one row per version.
//!
//! This is the only file that compares versions. All other code reads a property of a `&'static Dialect`, so that a new
//! version is a new row.

mod methods;

use std::fmt;

use bowline_types::{ErrorCode, ProtocolVersion};

/// The properties of one protocol version.
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
    /// The version string, a date such as `2025-11-25`.
    pub version: &'static str,
    /// How a client and a server exchange versions and capabilities.
    pub negotiation: Negotiation,
    /// How a server requests input from the client while it handles a request.
    pub input_mechanism: InputMechanism,
    /// Whether results have a `resultType`.
    pub has_result_type: bool,
    /// The methods whose complete results carry `ttlMs` and `cacheScope`.
    pub cacheable: &'static [&'static str],
    /// The methods whose result may be `input_required`.
    pub may_need_input: &'static [&'static str],
    /// The error code for a resource that does not exist.
    pub resource_not_found_code: ErrorCode,
    /// The error codes that this version defines in addition to those of JSON-RPC.
    pub error_codes: &'static [ErrorCode],
    /// Whether implementations may define their own codes from -32020 to -32099.
    pub allows_own_error_codes: bool,
    /// Whether the `completions` capability exists; without it, any server may support `completion/complete`.
    pub has_completions_capability: bool,
    /// Whether JSON-RPC batches are allowed.
    pub batches: bool,
    /// The allowed types of a tool result's `structuredContent`.
    pub structured_content: StructuredContent,
    /// The supported modes of elicitation.
    pub elicitation: ElicitationModes,
    /// Whether elicitation schemas support multi-select enums, titled enums, and defaults for every type.
    pub rich_forms: bool,
    /// Whether sampling supports tools, and messages with several content blocks.
    pub rich_sampling: bool,
    /// Members and content blocks that this version does not define.
    pub undefined: UndefinedMembers,
    /// The deprecated requests and notifications.
    pub deprecated: &'static [&'static str],
    /// Whether and how tasks are defined.
    pub tasks: Tasks,
    /// The properties of the HTTP transport.
    pub http: HttpProperties,
    /// The requests and notifications that are defined.
    pub methods: Methods,
}

/// How a client and a server exchange versions and capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "there are two eras, and a third would affect every match"
)]
pub enum Negotiation {
    /// Once, by `initialize` (legacy era).
    Handshake,
    /// In `_meta` of every request (modern era).
    EveryRequest,
}

/// How a server requests input from the client while it handles a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "code that requests input must handle every variant"
)]
pub enum InputMechanism {
    /// By a server-to-client request.
    Request,
    /// By an `input_required` result; the client retries the request with the input (multi round-trip).
    InputRequired,
}

/// The allowed types of a tool result's `structuredContent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "`seal` must handle every variant")]
pub enum StructuredContent {
    /// Not defined.
    Absent,
    /// An object.
    Object,
    /// Any JSON value.
    Any,
}

/// The supported modes of elicitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "code that requests input must handle every variant"
)]
pub enum ElicitationModes {
    /// Not supported.
    None,
    /// Form mode.
    Form,
    /// Form mode and URL mode.
    FormAndUrl,
}

/// Members and content blocks that a version does not define. Members are removed from outgoing messages, and content
/// blocks are replaced by text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UndefinedMembers {
    /// Members of an `Implementation`.
    pub implementation: &'static [&'static str],
    /// Members of all listed definitions: tools, prompts and their arguments, resources and resource templates.
    pub definition: &'static [&'static str],
    /// Further members of tools.
    pub tool: &'static [&'static str],
    /// Members of client capabilities.
    pub client_capabilities: &'static [&'static str],
    /// Members of the params of `completion/complete`.
    pub completion_params: &'static [&'static str],
    /// Members of the params of `notifications/progress`.
    pub progress_params: &'static [&'static str],
    /// Types of content blocks.
    pub content_blocks: &'static [&'static str],
}

/// Whether and how a version defines tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tasks {
    /// Not defined.
    None,
    /// Part of the core specification, experimental.
    Core,
    /// Defined by an extension.
    Extension,
}

/// The properties of a version's HTTP transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpProperties {
    /// The kind of transport.
    pub transport: HttpTransportKind,
    /// When a client sends `MCP-Protocol-Version`.
    pub version_header: VersionHeader,
    /// Whether `Mcp-Method` and related headers repeat parts of the body.
    pub mirrors_body_in_headers: bool,
    /// Whether the server may assign an id that the client sends with later requests and deletes with DELETE.
    pub assigns_client_ids: bool,
    /// Whether a client may open a stream with GET, and resume one with `Last-Event-ID`.
    pub resumable: bool,
    /// Whether a stream starts with an empty event that has an id and may set `retry`.
    pub primes_streams: bool,
    /// Whether closing the response stream cancels the request.
    pub disconnect_cancels: bool,
}

/// The kind of HTTP transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpTransportKind {
    /// HTTP+SSE: one endpoint for the event stream, another for POST.
    HttpSse,
    /// Streamable HTTP: one endpoint.
    Streamable,
}

/// When a client sends `MCP-Protocol-Version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VersionHeader {
    /// Never.
    Never,
    /// On every request after `initialize`.
    AfterInitialize,
    /// On every request.
    Always,
}

/// The requests and notifications of one version, including official extensions.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Methods {
    /// Requests from a client, without those of extensions.
    pub client_requests: &'static [&'static str],
    /// Requests from a client that official extensions define.
    pub extension_requests: &'static [&'static str],
    /// Requests from a server.
    pub server_requests: &'static [&'static str],
    /// Notifications from a client.
    pub client_notifications: &'static [&'static str],
    /// Notifications from a server.
    pub server_notifications: &'static [&'static str],
}

impl Dialect {
    /// All known versions, newest first.
    pub const ALL: &'static [&'static Self] = &[
        &V2026_07_28,
        &V2025_11_25,
        &V2025_06_18,
        &V2025_03_26,
        &V2024_11_05,
    ];

    /// The newest version.
    pub const LATEST: &'static Self = &V2026_07_28;

    /// The newest legacy version, which starts with `initialize`.
    pub const LATEST_LEGACY: &'static Self = &V2025_11_25;

    /// The version that is assumed for an HTTP request that does not name one.
    pub const ASSUMED_ON_HTTP: &'static Self = &V2025_03_26;

    /// Returns the dialect of a version, if the version is known.
    #[must_use]
    pub fn of(version: &str) -> Option<&'static Self> {
        Self::ALL.iter().copied().find(|row| row.version == version)
    }

    /// Returns the version as the type that messages use.
    #[must_use]
    pub fn protocol_version(&self) -> ProtocolVersion {
        self.version.into()
    }

    /// Returns whether the version is modern: each request carries its version and capabilities.
    #[must_use]
    pub fn is_modern(&self) -> bool {
        self.negotiation == Negotiation::EveryRequest
    }

    /// Returns whether a client may send the request.
    #[must_use]
    pub fn knows_request(&self, method: &str) -> bool {
        let Methods {
            client_requests,
            extension_requests,
            ..
        } = self.methods;
        client_requests.contains(&method) || extension_requests.contains(&method)
    }

    /// Returns whether a server may send the request.
    #[must_use]
    pub fn knows_server_request(&self, method: &str) -> bool {
        self.methods.server_requests.contains(&method)
    }

    /// Returns whether a client may send the notification.
    #[must_use]
    pub fn knows_notification(&self, method: &str) -> bool {
        self.methods.client_notifications.contains(&method)
    }

    /// Returns whether a server may send the notification.
    #[must_use]
    pub fn knows_server_notification(&self, method: &str) -> bool {
        self.methods.server_notifications.contains(&method)
    }

    /// Returns whether other versions define the client request but this one does not.
    ///
    /// Returns `false` for a custom method, which no version defines.
    #[must_use]
    pub fn lacks_request(&self, method: &str) -> bool {
        !self.knows_request(method) && Self::ALL.iter().any(|row| row.knows_request(method))
    }

    /// Returns whether other versions define the server request but this one does not.
    #[must_use]
    pub fn lacks_server_request(&self, method: &str) -> bool {
        !self.knows_server_request(method)
            && Self::ALL.iter().any(|row| row.knows_server_request(method))
    }

    /// Returns whether other versions define the server notification but this one does not.
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
            return self.resource_not_found_code;
        }
        if self.error_codes.contains(&code) || !is_reserved(code) {
            return code;
        }
        match code {
            // The closest code that every version defines.
            ErrorCode::HEADER_MISMATCH
            | ErrorCode::MISSING_CLIENT_CAPABILITY
            | ErrorCode::UNSUPPORTED_PROTOCOL_VERSION => ErrorCode::INVALID_PARAMS,
            ErrorCode::URL_ELICITATION_REQUIRED => ErrorCode::INTERNAL_ERROR,
            own if self.allows_own_error_codes => own,
            _ => ErrorCode::INTERNAL_ERROR,
        }
    }

    /// Returns whether complete results of a method carry `ttlMs` and `cacheScope`.
    #[must_use]
    pub fn is_cacheable(&self, method: &str) -> bool {
        self.cacheable.contains(&method)
    }

    /// Returns whether a request or notification is deprecated.
    #[must_use]
    pub fn is_deprecated(&self, method: &str) -> bool {
        self.deprecated.contains(&method)
    }

    /// Returns whether a method's result may be `input_required`. In modern versions, that of a custom method may.
    #[must_use]
    pub fn may_need_input(&self, method: &str) -> bool {
        self.may_need_input.contains(&method)
            || (self.is_modern() && !Self::ALL.iter().any(|row| row.knows_request(method)))
    }
}

/// Returns whether a version, known or not, belongs to the modern era.
///
/// Versions are dates, so a later one compares greater as text. A version that is not a date is not modern.
///
/// # Examples
///
/// ```
/// use bowline_core::era::is_modern_version;
///
/// assert!(is_modern_version("2026-07-28"));
/// assert!(is_modern_version("2031-01-01"));
/// assert!(!is_modern_version("2025-11-25"));
/// assert!(!is_modern_version("next"));
/// ```
#[must_use]
pub fn is_modern_version(version: &str) -> bool {
    is_date(version) && version >= V2026_07_28.version
}

/// Compares versions only, because there is one row per version.
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

/// A set of supported protocol versions, newest first.
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
    /// Returns all known versions.
    #[must_use]
    pub fn all() -> Self {
        Self(Dialect::ALL.to_vec())
    }

    /// Returns the modern versions.
    #[must_use]
    pub fn modern() -> Self {
        Self::only(|row| row.is_modern())
    }

    /// Returns the legacy versions, which start with `initialize`.
    #[must_use]
    pub fn legacy() -> Self {
        Self::only(|row| !row.is_modern())
    }

    /// Returns `version` and the later ones; `None` if it is unknown.
    #[must_use]
    pub fn since(version: &str) -> Option<Self> {
        let oldest = Dialect::of(version)?.version;
        Some(Self::only(|row| row.version >= oldest))
    }

    /// Returns the versions for which `keep` returns `true`.
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

    /// Returns the legacy versions of this set.
    #[must_use]
    pub fn without_modern(&self) -> Self {
        Self(self.iter().filter(|row| !row.is_modern()).collect())
    }

    /// Returns the dialect of a version, if it is in this set.
    #[must_use]
    pub fn of(&self, version: &str) -> Option<&'static Dialect> {
        self.iter().find(|row| row.version == version)
    }

    /// Returns the newest modern version of this set.
    #[must_use]
    pub fn latest_modern(&self) -> Option<&'static Dialect> {
        self.iter().find(|row| row.is_modern())
    }

    /// Returns the newest legacy version of this set.
    #[must_use]
    pub fn latest_legacy(&self) -> Option<&'static Dialect> {
        self.iter().find(|row| !row.is_modern())
    }

    /// Iterates over the versions, newest first.
    pub fn iter(&self) -> impl Iterator<Item = &'static Dialect> {
        self.0.iter().copied()
    }

    /// Iterates over the modern version strings, newest first, as in `data.supported` of a `-32022` error.
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

/// A single version.
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

// The modern row and the oldest one are complete; the others list only their changes to the previous version.

static V2026_07_28: Dialect = Dialect {
    version: "2026-07-28",
    negotiation: Negotiation::EveryRequest,
    input_mechanism: InputMechanism::InputRequired,
    has_result_type: true,
    cacheable: &[
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    ],
    may_need_input: &["tools/call", "prompts/get", "resources/read"],
    resource_not_found_code: ErrorCode::INVALID_PARAMS,
    error_codes: &[
        ErrorCode::HEADER_MISMATCH,
        ErrorCode::MISSING_CLIENT_CAPABILITY,
        ErrorCode::UNSUPPORTED_PROTOCOL_VERSION,
    ],
    allows_own_error_codes: false,
    has_completions_capability: true,
    batches: false,
    structured_content: StructuredContent::Any,
    elicitation: ElicitationModes::FormAndUrl,
    rich_forms: true,
    rich_sampling: true,
    undefined: UndefinedMembers {
        implementation: &[],
        definition: &[],
        tool: &["execution"],
        client_capabilities: &["tasks"],
        completion_params: &[],
        progress_params: &[],
        content_blocks: &[],
    },
    deprecated: &[
        "sampling/createMessage",
        "roots/list",
        "notifications/message",
    ],
    tasks: Tasks::Extension,
    http: HttpProperties {
        transport: HttpTransportKind::Streamable,
        version_header: VersionHeader::Always,
        mirrors_body_in_headers: true,
        assigns_client_ids: false,
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
    undefined: UndefinedMembers {
        implementation: &[],
        definition: &[],
        tool: &[],
        client_capabilities: &[],
        ..V2025_06_18.undefined
    },
    tasks: Tasks::Core,
    http: HttpProperties {
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
    undefined: UndefinedMembers {
        implementation: &["icons", "description", "websiteUrl"],
        definition: &["icons"],
        client_capabilities: &["tasks"],
        completion_params: &[],
        content_blocks: &[],
        ..V2025_03_26.undefined
    },
    http: HttpProperties {
        version_header: VersionHeader::AfterInitialize,
        ..V2025_03_26.http
    },
    methods: methods::V2025_06_18,
    ..V2025_03_26
};

static V2025_03_26: Dialect = Dialect {
    version: "2025-03-26",
    has_completions_capability: true,
    batches: true,
    undefined: UndefinedMembers {
        tool: &["execution"],
        progress_params: &[],
        content_blocks: &["resource_link"],
        ..V2024_11_05.undefined
    },
    http: HttpProperties {
        transport: HttpTransportKind::Streamable,
        assigns_client_ids: true,
        resumable: true,
        ..V2024_11_05.http
    },
    ..V2024_11_05
};

static V2024_11_05: Dialect = Dialect {
    version: "2024-11-05",
    negotiation: Negotiation::Handshake,
    input_mechanism: InputMechanism::Request,
    has_result_type: false,
    cacheable: &[],
    may_need_input: &[],
    resource_not_found_code: ErrorCode::RESOURCE_NOT_FOUND,
    error_codes: &[ErrorCode::RESOURCE_NOT_FOUND],
    allows_own_error_codes: true,
    has_completions_capability: false,
    batches: false,
    structured_content: StructuredContent::Absent,
    elicitation: ElicitationModes::None,
    rich_forms: false,
    rich_sampling: false,
    undefined: UndefinedMembers {
        implementation: &["title", "icons", "description", "websiteUrl"],
        definition: &["title", "icons", "_meta"],
        tool: &["execution", "annotations"],
        client_capabilities: &["elicitation", "tasks"],
        completion_params: &["context"],
        progress_params: &["message"],
        content_blocks: &["audio", "resource_link"],
    },
    deprecated: &[],
    tasks: Tasks::None,
    http: HttpProperties {
        transport: HttpTransportKind::HttpSse,
        version_header: VersionHeader::Never,
        mirrors_body_in_headers: false,
        assigns_client_ids: false,
        resumable: false,
        primes_streams: false,
        disconnect_cancels: false,
    },
    methods: methods::V2024_11_05,
};

#[cfg(test)]
mod tests;
