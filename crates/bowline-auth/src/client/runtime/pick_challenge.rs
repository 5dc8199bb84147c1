//! Selects the challenge of a refusal that is answered.

use bowline::http::client::Challenge;

/// Returns the challenge to answer: `DPoP` if there is one, with parameters that only the `Bearer` challenge has.
pub(super) fn pick_challenge(challenges: &[Challenge]) -> Option<Challenge> {
    let of = |scheme| {
        challenges
            .iter()
            .find(|challenge| challenge.has_scheme(scheme))
    };
    let (bound, bearer) = (of("DPoP"), of("Bearer"));
    let mut picked = bound.or(bearer)?.clone();
    for (name, value) in bearer.into_iter().flat_map(|bearer| &bearer.params) {
        if picked.param(name).is_none() {
            picked.params.push((name.clone(), value.clone()));
        }
    }
    Some(picked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dpop_challenge_is_preferred_and_completed_from_the_bearer_challenge() {
        let picked = |headers: &[&str]| {
            let picked = pick_challenge(&Challenge::parse_all(headers.iter().copied()));
            picked.map(|picked| picked.to_string())
        };

        assert_eq!(picked(&["Basic realm=\"x\""]), None);
        assert_eq!(
            picked(&["Basic, Bearer scope=\"a\""]).as_deref(),
            Some("Bearer scope=\"a\"")
        );
        assert_eq!(
            picked(&["Bearer scope=\"a\"", "DPoP algs=\"ES256\""]).as_deref(),
            Some("DPoP algs=\"ES256\", scope=\"a\"")
        );
    }
}
