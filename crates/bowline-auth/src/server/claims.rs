//! [`Claims`]: the claims of an access token, and the checks that apply to every token.

use std::collections::BTreeSet;

use bowline::Json;
use bowline::exchange::Principal;
use serde::Deserialize;
use serde_json::Value;

use super::VerifyError;

/// The claims of a JWT or of an introspection response, which share their names.
///
/// # Examples
///
/// ```
/// use bowline_auth::server::Claims;
///
/// let claims = Claims::read(br#"{"iss": "https://id.example", "sub": "ada", "aud": "https://files.example/mcp",
///     "scope": "files:read files:write", "exp": 1900000000}"#)?;
/// assert_eq!(claims.audience, ["https://files.example/mcp"]);
/// assert_eq!(claims.scopes, ["files:read", "files:write"]);
/// # Ok::<(), bowline_auth::server::VerifyError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Claims {
    /// The issuer: `iss`.
    pub issuer: Option<String>,
    /// The user or client that the token acts for: `sub`.
    pub subject: Option<String>,
    /// The client that the token was issued to: `client_id`.
    pub client_id: Option<String>,
    /// The resource servers that the token is for: `aud`.
    pub audience: Vec<String>,
    /// The granted scopes: `scope`, or `scp`.
    pub scopes: Vec<String>,
    /// When the token expires, in seconds since 1970: `exp`.
    pub expires_at: Option<u64>,
    /// When the token becomes valid, in seconds since 1970: `nbf`.
    pub not_before: Option<u64>,
    /// The confirmation method: `cnf`.
    pub(super) binding: Option<Binding>,
    /// All claims, as a JSON object.
    pub all: Option<Json>,
}

/// The confirmation method of a token (RFC 7800).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    /// The JWK thumbprint of a DPoP key: `jkt`.
    Key(String),
    /// A method that is not supported here, so that the token must be refused.
    Other,
}

/// The values that the claims are checked against.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExpectedClaims<'a> {
    pub(super) audiences: &'a BTreeSet<String>,
    /// `None` if the verifier has already checked the issuer.
    pub(super) issuers: Option<&'a [String]>,
    /// In seconds since 1970.
    pub(super) now: u64,
    /// The tolerated clock difference, in seconds.
    pub(super) leeway: u64,
}

impl Claims {
    /// Parses claims from JSON.
    ///
    /// # Errors
    ///
    /// [`VerifyError::Invalid`] if it is not an object, or a known claim has the wrong type.
    pub fn read(json: &[u8]) -> Result<Self, VerifyError> {
        let unreadable = |_| VerifyError::invalid("failed to parse the claims of the token");
        let raw: RawClaims = serde_json::from_slice(json).map_err(unreadable)?;
        let all = Json::parse(json.to_vec()).map_err(unreadable)?;
        let scopes = raw.scope.or(raw.scp).map(ScopeList::into_scopes);
        Ok(Self {
            issuer: raw.iss,
            subject: raw.sub,
            client_id: raw.client_id,
            audience: raw.aud.map(StringOrList::into_vec).unwrap_or_default(),
            scopes: scopes.unwrap_or_default(),
            expires_at: raw.exp.map(whole_seconds),
            not_before: raw.nbf.map(whole_seconds),
            binding: raw.cnf.as_ref().map(Binding::read),
            all: Some(all),
        })
    }

    /// Binds the token to a DPoP key by its SHA-256 JWK thumbprint.
    #[must_use]
    pub fn bound_to_key(mut self, thumbprint: impl Into<String>) -> Self {
        self.binding = Some(Binding::Key(thumbprint.into()));
        self
    }

    /// Checks issuer, audience, expiry and start of validity.
    pub(super) fn check(&self, expected: ExpectedClaims<'_>) -> Result<(), VerifyError> {
        let ExpectedClaims { now, leeway, .. } = expected;
        let issuer = self.issuer.as_ref();
        let is_expected = |issuer: &String| {
            expected
                .issuers
                .is_none_or(|issuers| issuers.contains(issuer))
        };
        if !issuer.is_some_and(is_expected) {
            return Err(VerifyError::invalid("the token is from another issuer"));
        }
        let mut audience = self.audience.iter();
        if !audience.any(|audience| expected.audiences.contains(audience)) {
            return Err(VerifyError::invalid("the token is for another audience"));
        }
        if self
            .expires_at
            .is_some_and(|end| now >= end.saturating_add(leeway))
        {
            return Err(VerifyError::invalid("the token has expired"));
        }
        if self
            .not_before
            .is_some_and(|start| now.saturating_add(leeway) < start)
        {
            return Err(VerifyError::invalid("the token is not valid yet"));
        }
        Ok(())
    }

    /// Returns the principal that the token acts for, with these scopes.
    ///
    /// A subject is unique within its issuer only. A token without `sub` is refused: `client_id` would merge all users
    /// of one client into one principal. (A client that acts for itself has its own id as `sub`.)
    pub(super) fn principal(&self, scopes: BTreeSet<String>) -> Result<Principal, VerifyError> {
        let (Some(issuer), Some(subject)) = (&self.issuer, &self.subject) else {
            return Err(VerifyError::invalid("the token has no `sub` claim"));
        };
        // An issuer is a URL without spaces, so different pairs have different names.
        let principal = Principal::named(format!("{issuer} {subject}"))
            .with_subject(&**subject)
            .with_scopes(scopes);
        Ok(match &self.all {
            Some(all) => principal.with_claims(all.clone()),
            None => principal,
        })
    }
}

impl Binding {
    fn read(confirmation: &Value) -> Self {
        // RFC 7800 allows one key. With several members, checking only `jkt` would leave the others unproven.
        match confirmation.as_object() {
            Some(members) if members.len() == 1 => match members.get("jkt") {
                Some(Value::String(thumbprint)) => Self::Key(thumbprint.clone()),
                _ => Self::Other,
            },
            _ => Self::Other,
        }
    }
}

#[derive(Deserialize)]
struct RawClaims {
    iss: Option<String>,
    sub: Option<String>,
    client_id: Option<String>,
    aud: Option<StringOrList>,
    scope: Option<ScopeList>,
    scp: Option<ScopeList>,
    exp: Option<f64>,
    nbf: Option<f64>,
    cnf: Option<Value>,
}

/// A string, or a list of strings.
#[derive(Deserialize)]
#[serde(untagged)]
enum StringOrList {
    String(String),
    List(Vec<String>),
}

impl StringOrList {
    fn into_vec(self) -> Vec<String> {
        match self {
            Self::String(string) => vec![string],
            Self::List(list) => list,
        }
    }
}

/// Strings separated by spaces, or a list of them.
#[derive(Deserialize)]
#[serde(transparent)]
struct ScopeList(StringOrList);

impl ScopeList {
    fn into_scopes(self) -> Vec<String> {
        let texts = self.0.into_vec();
        let scopes = texts.iter().flat_map(|text| text.split_ascii_whitespace());
        scopes.map(str::to_owned).collect()
    }
}

/// Converts a `NumericDate`, which may have a fraction.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "out-of-range values saturate"
)]
fn whole_seconds(date: f64) -> u64 {
    date as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESOURCE: &str = "https://files.example/mcp";
    const ISSUER: &str = "https://id.example";

    fn claims(change: &str) -> Claims {
        let mut all: Value =
            serde_json::json!({"iss": ISSUER, "sub": "ada", "aud": RESOURCE, "exp": 1000});
        let change: Value = serde_json::from_str(change).unwrap();
        for (name, value) in change.as_object().unwrap() {
            all[name] = value.clone();
        }
        Claims::read(all.to_string().as_bytes()).unwrap()
    }

    fn check(claims: &Claims, now: u64) -> Result<(), String> {
        check_with(claims, now, 10)
    }

    fn check_with(claims: &Claims, now: u64, leeway: u64) -> Result<(), String> {
        let audiences = BTreeSet::from([RESOURCE.to_owned()]);
        let issuers = [ISSUER.to_owned()];
        let expected = ExpectedClaims {
            audiences: &audiences,
            issuers: Some(&issuers),
            now,
            leeway,
        };
        claims.check(expected).map_err(|error| error.to_string())
    }

    #[test]
    fn issuer_audience_and_validity_period_are_checked() {
        for (change, now, expected) in [
            ("{}", 0, Ok(())),
            ("{}", 1009, Ok(())),
            ("{}", 1010, Err("the token has expired")),
            (r#"{"nbf": 500}"#, 490, Ok(())),
            (r#"{"nbf": 500}"#, 489, Err("the token is not valid yet")),
            (
                r#"{"aud": ["https://other.example", "https://files.example/mcp"]}"#,
                0,
                Ok(()),
            ),
            (
                r#"{"aud": "https://files.example/mcp/"}"#,
                0,
                Err("the token is for another audience"),
            ),
            (
                r#"{"aud": "https://other.example"}"#,
                0,
                Err("the token is for another audience"),
            ),
            (
                r#"{"aud": []}"#,
                0,
                Err("the token is for another audience"),
            ),
            (
                r#"{"aud": null}"#,
                0,
                Err("the token is for another audience"),
            ),
            (
                r#"{"iss": "https://id.example/"}"#,
                0,
                Err("the token is from another issuer"),
            ),
            (
                r#"{"iss": null}"#,
                0,
                Err("the token is from another issuer"),
            ),
        ] {
            let found = check(&claims(change), now);

            assert_eq!(found, expected.map_err(str::to_owned), "{change} at {now}");
        }
    }

    #[test]
    fn out_of_range_times_saturate() {
        let (expired, early) = ("the token has expired", "the token is not valid yet");
        for (change, expected) in [
            (r#"{"exp": 1e300}"#, Ok(())),
            (r#"{"exp": 18446744073709551615}"#, Ok(())),
            (r#"{"exp": -1e300}"#, Err(expired)),
            (r#"{"exp": 1e300, "nbf": 1e300}"#, Err(early)),
            (r#"{"exp": 1e300, "nbf": -1e300}"#, Ok(())),
        ] {
            let found = check(&claims(change), 5_000);

            assert_eq!(found, expected.map_err(str::to_owned), "{change}");
            assert_eq!(check_with(&claims(change), 5_000, u64::MAX), Ok(()));
        }
    }

    #[test]
    fn scopes_are_parsed_from_strings_and_lists() {
        for (change, scopes) in [
            (r#"{"scope": "a b"}"#, &["a", "b"][..]),
            (r#"{"scope": ["a", "b"]}"#, &["a", "b"]),
            (r#"{"scp": ["a", "b c"]}"#, &["a", "b", "c"]),
            (r#"{"scope": ""}"#, &[]),
            ("{}", &[]),
        ] {
            assert_eq!(claims(change).scopes, scopes, "{change}");
        }
    }

    #[test]
    fn an_unsupported_confirmation_method_is_not_ignored() {
        assert_eq!(claims("{}").binding, None);
        assert_eq!(
            claims(r#"{"cnf": {"jkt": "abc"}}"#).binding,
            Some(Binding::Key("abc".to_owned()))
        );
        assert_eq!(
            claims(r#"{"cnf": {"x5t#S256": "abc"}}"#).binding,
            Some(Binding::Other)
        );
        assert_eq!(claims(r#"{"cnf": 7}"#).binding, Some(Binding::Other));
        assert_eq!(
            claims(r#"{"cnf": {"jkt": "abc", "x5t#S256": "def"}}"#).binding,
            Some(Binding::Other),
            "a DPoP proof does not confirm the certificate"
        );
        assert_eq!(
            claims(r#"{"cnf": {"jkt": 7}}"#).binding,
            Some(Binding::Other)
        );
    }

    #[test]
    fn principals_of_different_issuers_or_subjects_have_different_names() {
        let name = |change: &str| {
            let principal = claims(change).principal(BTreeSet::new()).unwrap();
            assert_eq!(principal.subject(), Some("ada"));
            principal.name().unwrap().to_owned()
        };

        assert_eq!(name("{}"), "https://id.example ada");
        assert_ne!(name("{}"), name(r#"{"iss": "https://other.example"}"#));
        let without_subject = claims(r#"{"sub": null, "client_id": "robot"}"#);
        assert!(without_subject.principal(BTreeSet::new()).is_err());
    }

    #[test]
    fn claims_of_the_wrong_shape_are_refused() {
        for json in [
            "",
            "[]",
            r#"{"aud": 7}"#,
            r#"{"exp": "soon"}"#,
            r#"{"iss": ["a"]}"#,
        ] {
            assert!(Claims::read(json.as_bytes()).is_err(), "{json}");
        }
    }
}
