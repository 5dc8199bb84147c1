//! The codes of findings: what each means, why it matters, and how to mend it. Scripts depend on the names, which do not
//! change. `docs/doctor.md` has a table of them.

use super::report::Severity::{self, Error, Note, Warning};

/// A kind of finding.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Code {
    pub(crate) name: &'static str,
    /// How bad it usually is.
    pub(crate) severity: Severity,
    pub(crate) why: &'static str,
    pub(crate) mend: &'static str,
}

impl Code {
    pub(crate) const fn new(
        name: &'static str,
        severity: Severity,
        why: &'static str,
        mend: &'static str,
    ) -> Self {
        Self {
            name,
            severity,
            why,
            mend,
        }
    }
}

/// Declares the codes, and the list of all.
macro_rules! codes {
    ($($constant:ident = $name:literal, $severity:ident, $why:literal, $mend:literal;)*) => {
        $(pub(crate) static $constant: Code = Code::new($name, $severity, $why, $mend);)*

        /// The codes of this file.
        #[cfg(test)]
        pub(crate) static CODES: &[&Code] = &[$(&$constant),*];
    };
}

// Reaching the server.
codes! {
    DNS_FAILED = "dns-failed", Error,
        "No client can find the server.",
        "Check the name, and that its DNS record exists for clients outside of your network.";
    CONNECTION_FAILED = "connection-failed", Error,
        "No client can connect.",
        "Check that the server runs, listens on an address that clients reach, and that no firewall blocks the port.";
    TLS_NAME = "tls-name", Error,
        "Clients refuse a certificate that is for another name.",
        "Issue a certificate for the name in the URL, or use a URL with a name of the certificate.";
    TLS_EXPIRED = "tls-expired", Error,
        "Clients refuse a certificate outside of its validity period.",
        "Renew the certificate, and check the clocks of both machines.";
    TLS_UNTRUSTED = "tls-untrusted", Error,
        "Clients refuse a certificate whose issuer they do not know.",
        "Send the intermediate certificates too, or use a public authority. For an internal authority, add its \
         certificate to the system, or name its file in SSL_CERT_FILE.";
    TLS_FAILED = "tls-failed", Error,
        "No client can open an encrypted connection.",
        "Check that the port serves TLS 1.2 or 1.3, and not plain HTTP.";
    TLS_EXPIRES_SOON = "tls-expires-soon", Warning,
        "All clients fail on the day on which the certificate expires.",
        "Renew the certificate, and automate that.";
    PLAIN_HTTP = "plain-http", Warning,
        "Each network on the way can read and change the messages, tokens included.",
        "Serve HTTPS, for example by a reverse proxy in front of the server.";
    REDIRECT = "redirect", Warning,
        "Many clients do not follow redirects of a POST, or lose its body or the Authorization header.",
        "Use the final URL in the configuration of clients.";
    NOT_AN_ENDPOINT = "not-an-endpoint", Error,
        "Clients get pages or errors in place of MCP messages.",
        "Check the path of the URL: it is often /mcp, or /sse for the oldest transport.";
    SERVER_ERROR = "server-error", Error,
        "A 5xx status is a fault of the server or of a proxy in front of it, and clients cannot tell what they did.",
        "Look into the log of the server and of the proxies in front of it.";
    NO_ANSWER = "no-answer", Error,
        "A client waits until it gives up.",
        "Look into the log of the server: the request arrived, or hangs in a proxy.";
    NO_KEEP_ALIVE = "no-keep-alive", Note,
        "Each request needs a new connection, and with TLS a new handshake.",
        "Let the server and the proxy in front of it keep connections open.";

    WRONG_CONTENT_TYPE = "wrong-content-type", Error,
        "Clients decide by Content-Type how to read an answer, and refuse any other.",
        "Answer requests with `Content-Type: application/json` or `text/event-stream`.";
    SSE_BUFFERED = "sse-buffered", Error,
        "Progress, questions and keep-alives arrive only with the end of the call, so that clients give up on slow calls.",
        "Turn off buffering and compression of text/event-stream in each proxy (nginx: `proxy_buffering off`, or let \
         the server send `X-Accel-Buffering: no`), and flush each event in the server.";
    CLOCK_SKEW = "clock-skew", Warning,
        "Tokens, cookies and certificates seem expired, or not valid yet.",
        "Synchronize the clocks of both machines (NTP).";
    SMALL_BODY_LIMIT = "small-body-limit", Warning,
        "Calls with long texts, files or images as arguments fail.",
        "Raise the limit of request bodies in the server and in the proxies in front of it, to 4 MiB or more.";
    LARGE_BODY = "large-body", Warning,
        "A client cannot tell a body that is too large from an outage, and may repeat the request.",
        "Answer with status 413 if a body is too large.";

    NO_ERA = "no-era", Error,
        "Clients of no revision can use the server.",
        "Check that the target is an MCP server, and that it needs no arguments, variables or credentials.";
    WRONG_ERA_ANSWER = "wrong-era-answer", Error,
        "A client takes the server for one of the other era, and then all its requests fail.",
        "Answer `server/discover` with a discovery or -32601, and `initialize` with a legacy revision or an error.";
    UNTYPED_RESULT = "untyped-result", Warning,
        "Clients take the result for a complete one, and may take the server for a legacy one.",
        "Put `\"resultType\": \"complete\"` into each result of the modern era.";
    PROBE_IGNORED = "probe-ignored", Warning,
        "A client of both eras sends `server/discover` first, and waits for an answer that never comes.",
        "Answer unknown methods with the error -32601, also before `initialize`.";
    PROBE_KILLS = "probe-kills", Warning,
        "A client of both eras sends `server/discover` first, and must then start the server again.",
        "Answer unknown methods with the error -32601, also before `initialize`.";
    UNKNOWN_VERSION = "unknown-version", Warning,
        "A client must disconnect if it does not know the revision that a server answers with.",
        "Answer `initialize` with the revision of the client if the server has it, else with one that was published.";
    LEGACY_ONLY = "legacy-only", Note,
        "Clients need a handshake, and calls that wait for input need an open stream.",
        "Update the SDK of the server, or put `bowline bridge` in front of it.";

    ORIGIN_NOT_CHECKED = "origin-not-checked", Warning,
        "A web page that the user visits can send requests to the server (DNS rebinding).",
        "Answer requests with an unexpected Origin header with status 403.";
    HOST_NOT_CHECKED = "host-not-checked", Warning,
        "A web page can reach a server on this machine under a name of its own (DNS rebinding).",
        "Answer requests for an unexpected `Host` header with status 403.";
    NO_CORS = "no-cors", Note,
        "Clients in a web page cannot use the server. Other clients do not need it.",
        "If web pages should use it, answer preflight requests for their origins.";
    CORS_INCOMPLETE = "cors-incomplete", Warning,
        "Clients in a web page pass the preflight, and then cannot send or read a header that the protocol needs.",
        "List the headers in Access-Control-Allow-Headers, or Access-Control-Expose-Headers.";
    CORS_CREDENTIALS = "cors-credentials", Warning,
        "Any web page can send requests with the cookies of the user, and read the answers.",
        "Allow named origins only, or no credentials.";

    FORBIDDEN = "forbidden", Error,
        "No request is answered, and a client cannot tell what it lacks.",
        "Check the lists of allowed hosts, origins and addresses, in the server and in the proxies in front of it. If \
         a token is missing, answer with status 401.";
    AUTH_NO_METADATA = "auth-no-metadata", Error,
        "A client does not learn where to get a token, so that it cannot sign in.",
        "Send `WWW-Authenticate: Bearer resource_metadata=\"…\"` with the 401, and serve that document (RFC 9728).";
    AUTH_NO_CHALLENGE = "auth-no-challenge", Warning,
        "Some clients learn only from WWW-Authenticate where the metadata is.",
        "Send `WWW-Authenticate: Bearer resource_metadata=\"…\"` with the 401.";
    AUTH_RESOURCE_MISMATCH = "auth-resource-mismatch", Error,
        "A client refuses metadata of another resource, which could be an attempt to steal its token.",
        "Set `resource` of the metadata to the URL of the MCP endpoint, as clients see it.";
    AUTH_NO_SERVER = "auth-no-server", Error,
        "A client does not learn which authorization server issues tokens.",
        "List the issuer in `authorization_servers` of the resource metadata.";
    AUTH_SERVER_METADATA = "auth-server-metadata", Error,
        "A client cannot find the endpoints of the authorization server.",
        "Serve /.well-known/oauth-authorization-server (RFC 8414) or openid-configuration for the issuer.";
    AUTH_ISSUER_MISMATCH = "auth-issuer-mismatch", Error,
        "A client refuses metadata whose issuer is not the expected one, byte for byte.",
        "Make `issuer` equal to the entry of `authorization_servers`, also at its trailing slash.";
    AUTH_NO_PKCE = "auth-no-pkce", Error,
        "Clients refuse to sign in without PKCE.",
        "Support PKCE, and list S256 in `code_challenge_methods_supported`.";
    AUTH_NO_REGISTRATION = "auth-no-registration", Note,
        "Each client must be registered by its user.",
        "Support client id metadata documents, or dynamic client registration.";
    TOKEN_EXPIRED = "token-expired", Error,
        "The server refuses the token.",
        "Get a new token.";
    TOKEN_NOT_YET_VALID = "token-not-yet-valid", Error,
        "The server refuses the token.",
        "Synchronize the clocks of this machine, of the server and of the authorization server.";
    TOKEN_AUDIENCE = "token-audience", Error,
        "A server must refuse a token that was issued for another one.",
        "Request the token with `resource` set to the URL of this server (RFC 8707).";
    TOKEN_REFUSED = "token-refused", Error,
        "No request of this token works.",
        "Get a new token for this server, and compare its issuer, audience and scopes with what the server expects.";
    TOKEN_SCOPE = "token-scope", Error,
        "The server refuses requests that need more than the token allows.",
        "Get a token with these scopes.";

    CANNOT_START = "cannot-start", Error,
        "A host cannot start the server.",
        "Check the command, and that it is in the PATH of the host, which often differs from that of a terminal. Use \
         the full path.";
    EXITED_EARLY = "exited-early", Error,
        "A host sees a server that disconnects at once.",
        "Read what the server printed. Often a variable, an argument or a package is missing.";
    STDOUT_NOISE = "stdout-noise", Error,
        "Over stdio, stdout is the connection. Many clients disconnect at a line that is not a message.",
        "Log to stderr. Look for print statements, banners of frameworks and package managers, and debug output.";
    SLOW_START = "slow-start", Warning,
        "Hosts give up on servers that do not answer in time, some after few seconds.",
        "Install the package instead of downloading it at each start, and load data after the first answer.";
    NO_EXIT_ON_EOF = "no-exit-on-eof", Warning,
        "A host must kill the server, and where it does not, processes remain.",
        "End the program when stdin ends.";

    CANCEL_IGNORED = "cancel-ignored", Error,
        "A call whose result is not wanted any more goes on, and costs time, money or worse.",
        "Stop the work when the client sends `notifications/cancelled`, or, over modern HTTP, closes the request.";
    CANCEL_BREAKS_CONNECTION = "cancel-breaks-connection", Error,
        "Cancelling one call ends others.",
        "Cancel only the request that `notifications/cancelled` names.";
    CANCEL_HANGS = "cancel-hangs", Warning,
        "The client cannot tell that the call is over, and its connection stays open.",
        "End the response of a cancelled request.";

    PAGING_LOOP = "paging-loop", Error,
        "A client that reads all pages never ends, or misses the rest.",
        "Leave out `nextCursor` on the last page, and make each cursor lead to the next page.";
    LIST_FAILED = "list-failed", Error,
        "The server declares the capability, and clients then list it when they connect.",
        "Implement the method, or do not declare the capability.";
    DUPLICATE_TOOL = "duplicate-tool", Error,
        "Hosts refuse the list or call the wrong one.",
        "Give each tool a name of its own.";
    DUPLICATE_NAME = "duplicate-name", Error,
        "Clients cannot tell them apart.",
        "Give each prompt a name and each resource a URI of its own.";
    TOOL_NAME = "tool-name", Warning,
        "Hosts and model providers refuse or replace other characters and long names.",
        "Use 1 to 64 of the characters A-Z, a-z, 0-9, _ and -.";
    SCHEMA_ROOT = "schema-root", Error,
        "Arguments are an object. Hosts drop the tool, or all tools of the server.",
        "Put `\"type\": \"object\"` at the root of the input schema.";
    BROKEN_SCHEMA = "broken-schema", Error,
        "Hosts and model providers drop the tool, or refuse every request that contains it.",
        "Make it a valid JSON Schema 2020-12.";
    SCHEMA_EXTERNAL_REF = "schema-external-ref", Error,
        "Clients do not fetch schemas, because the address could be one that only they can reach.",
        "Copy the schema into `$defs`, and refer to `#/$defs/…`.";
    SCHEMA_HEADER = "schema-header", Error,
        "Clients over HTTP must hide a tool whose `x-mcp-header` is invalid.",
        "Use unique header names, on properties of type string, integer or boolean.";
    NO_DESCRIPTION = "no-description", Warning,
        "The model chooses and calls tools by their descriptions.",
        "Describe what the tool does, and when to use it.";
    UNDESCRIBED_PARAMETERS = "undescribed-parameters", Note,
        "The model guesses what an argument means.",
        "Add a `description` to each property of the input schema.";
    NO_ANNOTATIONS = "no-annotations", Note,
        "Hosts assume that the tool changes or destroys something, and ask the user before each call.",
        "Set `readOnlyHint`, or `destructiveHint` and `idempotentHint`.";
    CONTEXT_COST = "context-cost", Warning,
        "Each conversation carries the definitions of all tools, which costs money and attention of the model.",
        "Shorten the largest descriptions and schemas, or split the server.";
    MANY_TOOLS = "many-tools", Warning,
        "Hosts limit the number of tools (VS Code to 128), and models choose worse among many.",
        "Merge or split tools by task, so that a host can leave some out.";

    CONFIG_WORDS = "config-words", Error,
        "Hosts start programs without a shell, and look for one with this whole name.",
        "Put the program into `command`, and each argument into `args`.";
    CONFIG_PATH = "config-path", Error,
        "Hosts that are not started from a terminal often have a shorter PATH, too.",
        "Use the full path in `command`.";
    CONFIG_NPX = "config-npx", Warning,
        "The server does not start on a machine where the package is not installed yet.",
        "Put `-y` before the name of the package in `args`.";
    CONFIG_TYPE = "config-type", Error,
        "The host takes the entry for one of another transport, or ignores it.",
        "Add the `type`.";
    CONFIG_URL_KEY = "config-url-key", Error,
        "The host ignores the entry.",
        "Rename the member.";
    CONFIG_REDIRECT = "config-redirect", Warning,
        "Many clients do not follow redirects of a POST.",
        "Use the URL that it redirects to.";
    CONFIG_DISABLED = "config-disabled", Warning,
        "The server does not appear in the host.",
        "Enable the entry.";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::legacy_codes;
    use super::*;

    #[test]
    fn codes_have_different_names_in_lower_case() {
        let all: Vec<_> = CODES.iter().chain(legacy_codes::CODES).collect();
        let names: BTreeSet<_> = all.iter().map(|code| code.name).collect();

        assert_eq!(names.len(), all.len());
        let is_plain = |c: char| c.is_ascii_lowercase() || c == '-';
        assert!(names.iter().all(|name| name.chars().all(is_plain)));
    }

    #[test]
    fn the_guide_lists_every_code_with_its_severity() {
        let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/doctor.md");
        let guide = std::fs::read_to_string(guide).unwrap();

        for code in CODES.iter().chain(legacy_codes::CODES) {
            let row = format!("| `{}` | {} |", code.name, code.severity.name());
            assert!(guide.contains(&row), "docs/doctor.md has no row `{row}`");
        }
    }
}
