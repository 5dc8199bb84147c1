//! What a flow learned, as a change to credentials that others may have changed meanwhile.

use super::Secret;
use super::credentials::Credentials;
use super::flow::Intent;

/// The difference between what a flow started from and what it came to. Only this is written: whatever else is
/// kept may be newer than what the flow started from.
pub(crate) struct Learned<'a> {
    pub(crate) intent: Intent,
    pub(crate) before: &'a Credentials,
    pub(crate) after: &'a Credentials,
    /// The key that the flow's tokens are bound to.
    pub(crate) proof_key: Option<&'a Secret>,
}

impl Learned<'_> {
    /// Changes registrations, and tokens unless they were replaced or forgotten by somebody else.
    pub(crate) fn apply(&self, kept: &mut Credentials) {
        self.apply_registrations(kept);
        let (old, new) = (&self.before.tokens, &self.after.tokens);
        if old == new {
            return;
        }
        // A renewal succeeds the refresh token that it used. If another one is kept, that one is newer; if none
        // is, the user has signed out.
        let refresh = |tokens: &Credentials| {
            let tokens = tokens.tokens.as_ref();
            tokens.and_then(|tokens| tokens.refresh.clone())
        };
        let succeeds = match self.intent {
            Intent::Obtain | Intent::Revoke => true,
            Intent::Renew => kept.tokens.is_some() && refresh(kept) == refresh(self.before),
        };
        if succeeds {
            kept.tokens = new.clone();
            kept.proof_key = self.proof_key.cloned().or(kept.proof_key.take());
        }
    }

    /// Changes registrations only: the tokens were forgotten while the flow was under way.
    pub(crate) fn apply_registrations(&self, kept: &mut Credentials) {
        let (before, after) = (&self.before.registrations, &self.after.registrations);
        for (issuer, registration) in after {
            if before.get(issuer) != Some(registration) {
                kept.registrations
                    .insert(issuer.clone(), registration.clone());
            }
        }
        for (issuer, registration) in before {
            if !after.contains_key(issuer) && kept.registrations.get(issuer) == Some(registration) {
                kept.registrations.remove(issuer);
            }
        }
        if self.before.bound_to != self.after.bound_to {
            kept.bound_to.clone_from(&self.after.bound_to);
        }
        if kept.proof_key.is_none() {
            kept.proof_key = self.proof_key.cloned();
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

    fn apply(intent: Intent, before: &Credentials, after: &Credentials, kept: &mut Credentials) {
        let proof_key = None;
        Learned {
            intent,
            before,
            after,
            proof_key,
        }
        .apply(kept);
    }

    #[test]
    fn a_flow_that_changed_no_token_writes_none() {
        let before = holding("t0", Some("r0"));
        let mut after = before.clone();
        after.registrations.insert("i".into(), client("new"));
        let mut kept = holding("t1", Some("r1"));

        apply(Intent::Obtain, &before, &after, &mut kept);

        assert_eq!(kept.tokens, holding("t1", Some("r1")).tokens);
        assert_eq!(kept.registrations["i"], client("new"));
    }

    #[test]
    fn a_renewal_replaces_the_token_that_it_used_and_no_other() {
        let (before, after) = (holding("t0", Some("r0")), holding("t1", Some("r1")));
        let refused = holding("t0", None);
        let newer = holding("t9", Some("r9"));

        for (after, mut kept, expected) in [
            (&after, before.clone(), &after),
            (&after, newer.clone(), &newer),
            (&after, Credentials::default(), &Credentials::default()),
            (&refused, before.clone(), &refused),
            (&refused, newer.clone(), &newer),
        ] {
            apply(Intent::Renew, &before, after, &mut kept);

            assert_eq!(kept.tokens, expected.tokens);
        }
    }

    #[test]
    fn a_new_token_replaces_any_other() {
        let after = holding("t1", Some("r1"));
        let mut kept = holding("t9", Some("r9"));

        apply(Intent::Obtain, &holding("t0", None), &after, &mut kept);

        assert_eq!(kept.tokens, after.tokens);
    }
}
