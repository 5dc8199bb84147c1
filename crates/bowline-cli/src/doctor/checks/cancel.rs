//! Whether a cancelled call stops.

use super::super::codes;
use super::super::probe::cancel::{CancelFacts, CancelOutcome};
use super::super::report::Finding;

/// The verdict on cancellation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CancelVerdict {
    Healthy(String),
    Faulty(Vec<Finding>),
    /// Nothing was seen that shows it.
    Unknown(String),
}

pub(crate) fn judge(facts: &CancelFacts) -> CancelVerdict {
    let CancelFacts { tool, how, .. } = facts;
    if let Some(why) = &facts.next_request {
        let what = format!(
            "After a call of `{tool}` was cancelled by {how}, the next request failed: {why}."
        );
        return CancelVerdict::Faulty(vec![Finding::new(&codes::CANCEL_BREAKS_CONNECTION, what)]);
    }
    match &facts.outcome {
        CancelOutcome::Answered => {
            let what = format!(
                "A call of `{tool}` was cancelled by {how}, and its result came all the same."
            );
            CancelVerdict::Faulty(vec![Finding::new(&codes::CANCEL_IGNORED, what)])
        }
        CancelOutcome::ProgressWentOn => {
            let what =
                format!("A call of `{tool}` was cancelled by {how}, and its progress went on.");
            CancelVerdict::Faulty(vec![Finding::new(&codes::CANCEL_IGNORED, what)])
        }
        CancelOutcome::Hung => {
            let what =
                format!("A call of `{tool}` was cancelled by {how}, and its response stayed open.");
            CancelVerdict::Faulty(vec![Finding::new(&codes::CANCEL_HANGS, what)])
        }
        CancelOutcome::Stopped => CancelVerdict::Healthy(format!(
            "`{tool}` was ended by {how}, and other requests go on"
        )),
        CancelOutcome::ProgressStopped => CancelVerdict::Healthy(format!(
            "progress of `{tool}` stopped at {how}, and other requests go on"
        )),
        CancelOutcome::Silent => CancelVerdict::Healthy(format!(
            "no answer of `{tool}` after {how}, and other requests go on; without progress, whether it works on \
             unheard is not visible"
        )),
        CancelOutcome::TooFast => CancelVerdict::Unknown(format!(
            "`{tool}` was done before it was cancelled; name a slower one with --cancel-tool"
        )),
        CancelOutcome::Failed(why) => CancelVerdict::Unknown(format!(
            "the call of `{tool}` failed: {why}; name another with --cancel-tool"
        )),
        CancelOutcome::NotApplicable(why) => CancelVerdict::Unknown((*why).to_owned()),
    }
}

/// What to do where no tool was chosen.
pub(crate) const NO_TOOL: &str = "no tool is known to be slow and safe to call; name one that takes some seconds with \
                                  --cancel-tool NAME --cancel-args JSON";

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(outcome: CancelOutcome, next_request: Option<&str>) -> CancelVerdict {
        judge(&CancelFacts {
            tool: "slow".into(),
            how: "`notifications/cancelled`",
            outcome,
            next_request: next_request.map(str::to_owned),
        })
    }

    fn code(verdict: CancelVerdict) -> &'static str {
        match verdict {
            CancelVerdict::Faulty(findings) => findings[0].code.name,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_server_that_goes_on_is_named() {
        assert_eq!(
            code(verdict(CancelOutcome::Answered, None)),
            "cancel-ignored"
        );
        assert_eq!(
            code(verdict(CancelOutcome::ProgressWentOn, None)),
            "cancel-ignored"
        );
        assert_eq!(code(verdict(CancelOutcome::Hung, None)), "cancel-hangs");
        let broken = verdict(CancelOutcome::Stopped, Some("it exited"));
        assert_eq!(code(broken), "cancel-breaks-connection");
    }

    #[test]
    fn what_cannot_be_seen_is_not_called_healthy_or_faulty() {
        assert!(matches!(
            verdict(CancelOutcome::Stopped, None),
            CancelVerdict::Healthy(_)
        ));
        assert!(matches!(
            verdict(CancelOutcome::TooFast, None),
            CancelVerdict::Unknown(_)
        ));
    }
}
