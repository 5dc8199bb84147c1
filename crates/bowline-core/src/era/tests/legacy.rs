//! Tests of a legacy client that never sent `initialize`.

use bowline_types::LoggingLevel;

use super::*;

/// COMPAT-13: a server MAY "read a header-less request as 2025-03-26".
#[test]
fn a_client_without_initialize_is_known_by_its_version_only() {
    let assumed = Dialect::ASSUMED_ON_HTTP;
    let mut opened =
        super::super::legacy::Session::without_handshake(assumed, LegacyFeatures::default());

    let admitted = opened.admit(raw("tools/list", json!({})), &Dialects::all());
    let (request, _) = request_in(admitted.unwrap());

    assert_eq!(request.caller.dialect.version, "2025-03-26");
    assert_eq!(request.caller.implementation, None);
    assert_eq!(request.caller.log_level, None);
    assert_eq!(request.caller.least_log_level(), Some(LoggingLevel::Debug));
    assert_eq!(request.caller.capabilities, Default::default());
    assert!(opened.is_ready());
}
