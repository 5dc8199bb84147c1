//! What a token says, and whether that is good enough here and now.

use std::collections::BTreeSet;

use bowline::Json;
use bowline::exchange::Principal;
use serde::Deserialize;
use serde_json::Value;

use super::Refused;

/// What a token says: the claims of a JWT, or the answer to an introspection, which use the same words.
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
/// # Ok::<(), bowline_auth::server::Refused>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Claims {
    /// Who made the token: `iss`.
    pub issuer: Option<String>,
    /// On whose behalf it is used: `sub`.
    pub subject: Option<String>,
    /// Which client got it: `client_id`.
    pub client_id: Option<String>,
    /// Whom it is meant for: `aud`.
    pub audience: Vec<String>,
    /// What it allows: `scope`, or `scp`.
    pub scopes: Vec<String>,
    /// When it ends, in seconds since 1970: `exp`.
    pub expires_at: Option<u64>,
    /// When it begins: `nbf`.
    pub not_before: Option<u64>,
    /// What it is bound to, if its bearer must prove something: `cnf`.
    pub(super) binding: Option<Binding>,
    /// All of it, an object.
    pub all: Option<Json>,
}

/// What the bearer of a token must prove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    /// That it has the key with this thumbprint.
    Key(String),
    /// Something that nobody here can check.
    Other,
}

/// What a token is compared with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected<'a> {
    pub(super) audiences: &'a BTreeSet<String>,
    /// `None` if the verifier has made sure of the issuer.
    pub(super) issuers: Option<&'a [String]>,
    /// In seconds since 1970.
    pub(super) now: u64,
    /// How many seconds the issuer's clock may be off.
    pub(super) leeway: u64,
}

impl Claims {
    /// Reads claims from their JSON.
    ///
    /// # Errors
    ///
    /// [`Refused::Invalid`] if it is no object, or one of the claims that matter has the wrong shape.
    pub fn read(json: &[u8]) -> Result<Self, Refused> {
        let unreadable = |_| Refused::invalid("the token's claims cannot be read");
        let raw: Raw = serde_json::from_slice(json).map_err(unreadable)?;
        let all = Json::parse(json.to_vec()).map_err(unreadable)?;
        let scopes = raw.scope.or(raw.scp).map(Words::into_words);
        Ok(Self {
            issuer: raw.iss,
            subject: raw.sub,
            client_id: raw.client_id,
            audience: raw.aud.map(OneOrMore::into_vec).unwrap_or_default(),
            scopes: scopes.unwrap_or_default(),
            expires_at: raw.exp.map(whole_seconds),
            not_before: raw.nbf.map(whole_seconds),
            binding: raw.cnf.as_ref().map(Binding::read),
            all: Some(all),
        })
    }

    /// Binds the token to a key, by the key's SHA-256 thumbprint: its bearer must prove to have it.
    #[must_use]
    pub fn bound_to_key(mut self, thumbprint: impl Into<String>) -> Self {
        self.binding = Some(Binding::Key(thumbprint.into()));
        self
    }

    /// Checks that the token is meant for us and still good.
    pub(super) fn check(&self, expected: Expected<'_>) -> Result<(), Refused> {
        let Expected { now, leeway, .. } = expected;
        let issuer = self.issuer.as_ref();
        let is_expected = |issuer: &String| {
            expected
                .issuers
                .is_none_or(|issuers| issuers.contains(issuer))
        };
        if !issuer.is_some_and(is_expected) {
            return Err(Refused::invalid("the token is from another issuer"));
        }
        let mut audience = self.audience.iter();
        if !audience.any(|meant_for| expected.audiences.contains(meant_for)) {
            return Err(Refused::invalid("the token is meant for another audience"));
        }
        if self
            .expires_at
            .is_some_and(|end| now >= end.saturating_add(leeway))
        {
            return Err(Refused::invalid("the token has expired"));
        }
        if self
            .not_before
            .is_some_and(|start| now.saturating_add(leeway) < start)
        {
            return Err(Refused::invalid("the token is not valid yet"));
        }
        Ok(())
    }

    /// On whose behalf the token is used, with these scopes.
    ///
    /// A subject is unique with its issuer only. A client that acts for itself is its own subject; without a
    /// subject all users of one client would be the same.
    pub(super) fn principal(&self, scopes: BTreeSet<String>) -> Result<Principal, Refused> {
        let (Some(issuer), Some(subject)) = (&self.issuer, &self.subject) else {
            return Err(Refused::invalid(
                "the token does not say on whose behalf it is used",
            ));
        };
        // An issuer is a URL and has no spaces, so that no two pairs give one name.
        let principal = Principal::named(format!("{issuer} {subject}")).with_scopes(scopes);
        Ok(match &self.all {
            Some(all) => principal.with_claims(all.clone()),
            None => principal,
        })
    }
}

impl Binding {
    fn read(confirmation: &Value) -> Self {
        // Several members are several keys, of which each must be proven: RFC 7800 has one.
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
struct Raw {
    iss: Option<String>,
    sub: Option<String>,
    client_id: Option<String>,
    aud: Option<OneOrMore>,
    scope: Option<Words>,
    scp: Option<Words>,
    exp: Option<f64>,
    nbf: Option<f64>,
    cnf: Option<Value>,
}

/// A text, or a list of them.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(one) => vec![one],
            Self::More(more) => more,
        }
    }
}

/// Words between spaces, or a list of them.
#[derive(Deserialize)]
#[serde(transparent)]
struct Words(OneOrMore);

impl Words {
    fn into_words(self) -> Vec<String> {
        let texts = self.0.into_vec();
        let words = texts.iter().flat_map(|text| text.split_ascii_whitespace());
        words.map(str::to_owned).collect()
    }
}

/// A `NumericDate` may have a fraction; a cast takes what is out of range to the nearest end.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts saturate"
)]
fn whole_seconds(date: f64) -> u64 {
    date as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: &str = "https://files.example/mcp";
    const ISSUER: &str = "https://id.example";

    fn claims(change: &str) -> Claims {
        let mut all: Value =
            serde_json::json!({"iss": ISSUER, "sub": "ada", "aud": US, "exp": 1000});
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
        let audiences = BTreeSet::from([US.to_owned()]);
        let issuers = [ISSUER.to_owned()];
        let expected = Expected {
            audiences: &audiences,
            issuers: Some(&issuers),
            now,
            leeway,
        };
        claims
            .check(expected)
            .map_err(|refused| refused.to_string())
    }

    #[test]
    fn a_token_is_good_for_its_audience_from_its_issuer_in_its_time() {
        for (change, now, verdict) in [
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
                Err("the token is meant for another audience"),
            ),
            (
                r#"{"aud": "https://other.example"}"#,
                0,
                Err("the token is meant for another audience"),
            ),
            (
                r#"{"aud": []}"#,
                0,
                Err("the token is meant for another audience"),
            ),
            (
                r#"{"aud": null}"#,
                0,
                Err("the token is meant for another audience"),
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

            assert_eq!(found, verdict.map_err(str::to_owned), "{change} at {now}");
        }
    }

    #[test]
    fn times_beyond_all_clocks_are_compared_like_others() {
        let (expired, early) = ("the token has expired", "the token is not valid yet");
        for (change, verdict) in [
            (r#"{"exp": 1e300}"#, Ok(())),
            (r#"{"exp": 18446744073709551615}"#, Ok(())),
            (r#"{"exp": -1e300}"#, Err(expired)),
            (r#"{"exp": 1e300, "nbf": 1e300}"#, Err(early)),
            (r#"{"exp": 1e300, "nbf": -1e300}"#, Ok(())),
        ] {
            let found = check(&claims(change), 5_000);

            assert_eq!(found, verdict.map_err(str::to_owned), "{change}");
            assert_eq!(check_with(&claims(change), 5_000, u64::MAX), Ok(()));
        }
    }

    #[test]
    fn scopes_are_read_in_every_spelling() {
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
    fn a_binding_that_nobody_can_check_is_one_all_the_same() {
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
            "a certificate that is not checked is not proven by a key"
        );
        assert_eq!(
            claims(r#"{"cnf": {"jkt": 7}}"#).binding,
            Some(Binding::Other)
        );
    }

    #[test]
    fn nobody_has_the_name_of_somebody_else() {
        let name = |change: &str| {
            let principal = claims(change).principal(BTreeSet::new()).unwrap();
            principal.name().unwrap().to_owned()
        };

        assert_eq!(name("{}"), "https://id.example ada");
        assert_ne!(name("{}"), name(r#"{"iss": "https://other.example"}"#));
        let nobody = claims(r#"{"sub": null, "client_id": "robot"}"#);
        assert!(nobody.principal(BTreeSet::new()).is_err());
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
