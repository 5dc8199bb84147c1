//! Tests of the table against the specification's revisions.

use super::*;

#[test]
fn the_rows_are_sorted_newest_first_and_only_the_first_is_modern() {
    let versions: Vec<_> = Dialect::ALL.iter().map(|row| row.version).collect();
    let modern: Vec<_> = Dialects::modern().iter().map(|row| row.version).collect();

    assert!(versions.iter().rev().is_sorted());
    assert_eq!(modern, ["2026-07-28"]);
    assert_eq!(Dialect::ALL[0], Dialect::LATEST);
    assert_eq!(Dialect::ALL[1], Dialect::LATEST_LEGACY);
    assert_ne!(Dialect::ALL[1], Dialect::LATEST);
}

#[test]
fn the_versions_since_one_include_it_and_all_later_ones() {
    let since = |version| Dialects::since(version).map(|set| set.iter().count());

    assert_eq!(since("2024-11-05"), Some(Dialect::ALL.len()));
    assert_eq!(since("2025-06-18"), Some(3));
    assert_eq!(since("2026-07-28"), Some(1));
    assert_eq!(since("2025-06-17"), None);
}

#[test]
fn every_known_version_has_a_row_and_no_other_has() {
    for version in ProtocolVersion::ALL {
        let row = Dialect::of(version.as_str()).unwrap();

        assert_eq!(row.protocol_version(), version);
        assert_eq!(row.to_string(), version.as_str());
    }
    for version in ["", "2026-07-29", "2026-07-28 ", "latest"] {
        assert_eq!(Dialect::of(version), None, "{version:?} has a row");
    }
    assert_eq!(Dialect::ALL.len(), ProtocolVersion::ALL.len());
}

#[test]
fn the_era_of_an_unknown_version_is_derived_from_its_date() {
    for row in Dialect::ALL {
        assert_eq!(is_modern_version(row.version), row.is_modern());
    }
    for version in ["2026-07-28", "2026-07-29", "2099-12-31"] {
        assert!(is_modern_version(version), "{version} is modern");
    }
    for version in [
        "2026-07-27",
        "1999-01-01",
        "",
        "zzz",
        "2026-07-28x",
        "2026/07/28",
    ] {
        assert!(!is_modern_version(version), "{version} is not modern");
    }
}

/// "Features by version", from the change logs of the revisions.
#[test]
fn each_row_has_the_features_of_its_revision() {
    use ElicitationModes as Elicit;
    use HttpTransportKind::{HttpSse, Streamable};
    use StructuredContent::{Absent, Any, Object};
    use VersionHeader::{AfterInitialize, Always, Never};

    #[rustfmt::skip]
    let table = [
        // version, transport, batches, remembers, primes, header, structured, elicitation, tasks
        ("2024-11-05", HttpSse, false, false, false, Never, Absent, Elicit::None, Tasks::None),
        ("2025-03-26", Streamable, true, true, false, Never, Absent, Elicit::None, Tasks::None),
        ("2025-06-18", Streamable, false, true, false, AfterInitialize, Object, Elicit::Form, Tasks::None),
        ("2025-11-25", Streamable, false, true, true, AfterInitialize, Object, Elicit::FormAndUrl, Tasks::Core),
        ("2026-07-28", Streamable, false, false, false, Always, Any, Elicit::FormAndUrl, Tasks::Extension),
    ];
    for (version, transport, batches, remembers, primes, header, structured, elicit, tasks) in table
    {
        let row = Dialect::of(version).unwrap();

        assert_eq!(row.http.transport, transport, "{version}");
        assert_eq!(row.batches, batches, "{version}");
        assert_eq!(row.http.assigns_client_ids, remembers, "{version}");
        assert_eq!(row.http.resumable, remembers, "{version}");
        assert_eq!(row.http.primes_streams, primes, "{version}");
        assert_eq!(row.http.version_header, header, "{version}");
        assert_eq!(row.structured_content, structured, "{version}");
        assert_eq!(row.elicitation, elicit, "{version}");
        assert_eq!(row.tasks, tasks, "{version}");
    }
}

#[test]
fn the_eras_differ_in_every_property_of_the_era() {
    for row in Dialect::ALL {
        let modern = row.is_modern();

        assert_eq!(row.has_result_type, modern, "{row}");
        assert_eq!(!row.cacheable.is_empty(), modern, "{row}");
        assert_eq!(!row.may_need_input.is_empty(), modern, "{row}");
        assert_eq!(row.http.disconnect_cancels, modern, "{row}");
        assert_eq!(row.http.mirrors_body_in_headers, modern, "{row}");
        assert_eq!(
            row.input_mechanism == InputMechanism::Request,
            !modern,
            "{row}"
        );
        assert_eq!(
            row.resource_not_found_code == ErrorCode::RESOURCE_NOT_FOUND,
            !modern,
            "{row}"
        );
    }
}

/// BASE-14: "Originate JSON-RPC requests. All server-to-client asks ride inside `InputRequiredResult`":
/// a modern server MUST NOT.
#[test]
fn modern_versions_define_no_server_requests() {
    assert!(Dialect::LATEST.methods.server_requests.is_empty());
}

#[test]
fn methods_of_other_versions_are_lacking_and_custom_ones_are_not() {
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/list",
        "tasks/result",
    ] {
        assert!(Dialect::LATEST.lacks_request(method), "{method}");
        assert!(!Dialect::LATEST_LEGACY.lacks_request(method), "{method}");
    }
    for method in ["server/discover", "subscriptions/listen", "tasks/update"] {
        assert!(!Dialect::LATEST.lacks_request(method), "{method}");
        assert!(Dialect::LATEST_LEGACY.lacks_request(method), "{method}");
    }
    for row in Dialect::ALL {
        assert!(!row.lacks_request("com.example/own"));
        assert!(!row.lacks_request("tools/call"));
    }
}

#[test]
fn cacheable_and_input_methods_are_requests_of_their_row() {
    for row in Dialect::ALL {
        for method in row.cacheable.iter().chain(row.may_need_input) {
            assert!(row.knows_request(method), "{row} does not know {method}");
        }
    }
}

#[test]
fn a_client_sends_the_notifications_of_its_version() {
    for row in Dialect::ALL {
        assert!(row.knows_notification("notifications/cancelled"), "{row}");
        let initialized = row.knows_notification("notifications/initialized");
        assert_eq!(initialized, !row.is_modern(), "{row}");
        assert!(!row.knows_notification("notifications/message"), "{row}");
    }
}

#[test]
fn roots_sampling_and_logging_are_deprecated_in_the_modern_version_only() {
    for method in [
        "roots/list",
        "sampling/createMessage",
        "notifications/message",
    ] {
        for row in Dialect::ALL {
            assert_eq!(row.is_deprecated(method), row.is_modern(), "{row} {method}");
        }
    }
    assert!(!Dialect::LATEST.is_deprecated("tools/call"));
}

#[test]
fn a_single_dialect_converts_into_a_list_of_itself() {
    let only = Dialects::from(Dialect::LATEST_LEGACY);

    let versions: Vec<_> = only.iter().map(|dialect| dialect.version).collect();
    assert_eq!(versions, [Dialect::LATEST_LEGACY.version]);
}
