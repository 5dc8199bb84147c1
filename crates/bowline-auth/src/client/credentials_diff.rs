//! [`CredentialsDiff`]: merges the result of a flow into stored credentials that other processes may have changed.

use super::Secret;
use super::credentials::Credentials;
use super::flow::Intent;

/// The difference between the credentials before and after a flow. Only the difference is written, because the other
/// stored members may be newer than those the flow started from.
pub(crate) struct CredentialsDiff<'a> {
    pub(crate) intent: Intent,
    pub(crate) before: &'a Credentials,
    pub(crate) after: &'a Credentials,
    /// The key that the tokens of the flow are bound to.
    pub(crate) proof_key: Option<&'a Secret>,
}

impl CredentialsDiff<'_> {
    /// Applies changed registrations, and changed tokens unless another process replaced or removed them.
    pub(crate) fn apply(&self, stored: &mut Credentials) {
        self.apply_registrations(stored);
        let (old, new) = (&self.before.tokens, &self.after.tokens);
        if old == new {
            return;
        }
        // A refresh replaces only the refresh token that it used. Another stored one is newer; none means that the user
        // signed out.
        let refresh = |tokens: &Credentials| {
            let tokens = tokens.tokens.as_ref();
            tokens.and_then(|tokens| tokens.refresh.clone())
        };
        let may_replace = match self.intent {
            Intent::Obtain | Intent::Revoke => true,
            Intent::Refresh => stored.tokens.is_some() && refresh(stored) == refresh(self.before),
        };
        if may_replace {
            stored.tokens = new.clone();
            stored.proof_key = self.proof_key.cloned().or(stored.proof_key.take());
        }
    }

    /// Applies changed registrations only: the tokens were removed during the flow.
    pub(crate) fn apply_registrations(&self, stored: &mut Credentials) {
        let (before, after) = (&self.before.registrations, &self.after.registrations);
        for (issuer, registration) in after {
            if before.get(issuer) != Some(registration) {
                stored
                    .registrations
                    .insert(issuer.clone(), registration.clone());
            }
        }
        for (issuer, registration) in before {
            if !after.contains_key(issuer) && stored.registrations.get(issuer) == Some(registration)
            {
                stored.registrations.remove(issuer);
            }
        }
        if self.before.bound_to != self.after.bound_to {
            stored.bound_to.clone_from(&self.after.bound_to);
        }
        if stored.proof_key.is_none() {
            stored.proof_key = self.proof_key.cloned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::credentials::{AuthMethod, Registration, TokenKind, Tokens};
    use crate::client::scopes::Scopes;

    fn client(id: &str) -> Registration {
        Registration {
            client_id: id.into(),
            secret: None,
            method: AuthMethod::None,
            redirect_uri: None,
            expires_at: None,
        }
    }

    fn holding(access: &str, refresh: Option<&str>) -> Credentials {
        Credentials {
            tokens: Some(Tokens {
                issuer: "i".into(),
                client: client("c"),
                access: Secret::new(access),
                kind: TokenKind::Bearer,
                refresh: refresh.map(Secret::new),
                renew_at: None,
                expires_at: None,
                requested: Scopes::default(),
            }),
            ..Credentials::default()
        }
    }

    fn apply(intent: Intent, before: &Credentials, after: &Credentials, stored: &mut Credentials) {
        let proof_key = None;
        CredentialsDiff {
            intent,
            before,
            after,
            proof_key,
        }
        .apply(stored);
    }

    #[test]
    fn a_flow_that_changed_no_token_keeps_the_stored_one() {
        let before = holding("t0", Some("r0"));
        let mut after = before.clone();
        after.registrations.insert("i".into(), client("new"));
        let mut stored = holding("t1", Some("r1"));

        apply(Intent::Obtain, &before, &after, &mut stored);

        assert_eq!(stored.tokens, holding("t1", Some("r1")).tokens);
        assert_eq!(stored.registrations["i"], client("new"));
    }

    #[test]
    fn a_refresh_replaces_only_the_token_that_it_used() {
        let (before, after) = (holding("t0", Some("r0")), holding("t1", Some("r1")));
        let refused = holding("t0", None);
        let newer = holding("t9", Some("r9"));

        for (after, mut stored, expected) in [
            (&after, before.clone(), &after),
            (&after, newer.clone(), &newer),
            (&after, Credentials::default(), &Credentials::default()),
            (&refused, before.clone(), &refused),
            (&refused, newer.clone(), &newer),
        ] {
            apply(Intent::Refresh, &before, after, &mut stored);

            assert_eq!(stored.tokens, expected.tokens);
        }
    }

    #[test]
    fn a_new_token_replaces_any_stored_one() {
        let after = holding("t1", Some("r1"));
        let mut stored = holding("t9", Some("r9"));

        apply(Intent::Obtain, &holding("t0", None), &after, &mut stored);

        assert_eq!(stored.tokens, after.tokens);
    }
}
