//! The checks of a server without the fixture, which call one of its tools.

use std::task::Poll;

use bowline::Client;
use serde_json::Value;

use crate::checks::{Outcome, Result, ensure, text};

/// A call with a known result, and an optional slow call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ToolCase {
    call: ToolCall,
    /// A part of the text that the call returns.
    expected: String,
    slow: Option<ToolCall>,
}

/// The name of a tool and its arguments.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ToolCall {
    tool: String,
    arguments: Value,
}

impl ToolCase {
    /// Parses `--tool NAME ARGUMENTS EXPECTED` and `--slow NAME ARGUMENTS` at the beginning of `words`, and returns the
    /// remaining words. Without `--tool` the case is `None`.
    pub(crate) fn parse(words: &[String]) -> Result<(Option<Self>, &[String]), String> {
        let [option, tool, arguments, expected, rest @ ..] = words else {
            return Ok((None, words));
        };
        if option != "--tool" {
            return Ok((None, words));
        }
        let mut case = Self {
            call: ToolCall::parse(tool, arguments)?,
            expected: expected.clone(),
            slow: None,
        };
        match rest {
            [option, tool, arguments, rest @ ..] if option == "--slow" => {
                case.slow = Some(ToolCall::parse(tool, arguments)?);
                Ok((Some(case), rest))
            }
            _ => Ok((Some(case), rest)),
        }
    }

    /// Lists all pages of tools.
    pub(crate) async fn list(&self, client: &Client) -> Result<Outcome> {
        let tools = client.list_tools().await?;

        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        for call in std::iter::once(&self.call).chain(&self.slow) {
            let tool = call.tool.as_str();
            ensure(names.contains(&tool), || {
                format!("no `{tool}` in {names:?}")
            })?;
        }
        Ok(Outcome::Ok)
    }

    /// Calls the tool and checks its result.
    pub(crate) async fn call(&self, client: &Client) -> Result<Outcome> {
        let ToolCall { tool, arguments } = &self.call;
        let answer = text(client, tool, arguments.clone()).await?;
        ensure(answer.contains(&self.expected), || {
            format!(
                "expected `{}` from `{tool}`, got `{answer:.80}`",
                self.expected
            )
        })?;
        Ok(Outcome::Ok)
    }

    /// Drops a call; the server must answer the next ones.
    pub(crate) async fn abandon(&self, client: &Client) -> Result<Outcome> {
        let dropped = self.slow.as_ref().unwrap_or(&self.call);
        let call = client.call_tool(&dropped.tool, dropped.arguments.clone());
        let mut call = Box::pin(call.into_future());
        // The first poll queues the request. A fast server may already answer, which does not matter.
        let _ = std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await;
        match &self.slow {
            // Once a later call is answered, the server has received the earlier one and is running its handler.
            Some(_) => {
                self.call(client).await?;
            }
            // Lets the task of the connection write the request.
            None => tokio::task::yield_now().await,
        }
        drop(call);
        // A server that wrongly exits on a cancel may still answer one call.
        for _ in 0..CALLS_AFTER {
            self.call(client).await?;
        }
        Ok(Outcome::Ok)
    }
}

impl ToolCall {
    fn parse(tool: &str, arguments: &str) -> Result<Self, String> {
        let arguments = serde_json::from_str(arguments)
            .map_err(|error| format!("invalid JSON arguments of `{tool}`: {error}"))?;
        Ok(Self {
            tool: tool.to_owned(),
            arguments,
        })
    }
}

/// Fails if this process has a child, even as a zombie. Without `/proc` it always succeeds.
pub(crate) fn ensure_no_children() -> Result<()> {
    let own_id = std::process::id().to_string();
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Ok(());
    };
    for process in processes.flatten() {
        // The file of a process that exits meanwhile is gone.
        let stat = std::fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        // The name is in parentheses and may contain any character; the state and the parent follow.
        let parent = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.split(' ').nth(1));
        ensure(parent != Some(own_id.as_str()), || {
            format!("the server has not exited: {stat:.60}")
        })?;
    }
    Ok(())
}

const CALLS_AFTER: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn a_case_has_a_call_and_an_optional_slow_call() {
        let line = words(&["--tool", "add", "[1]", "2", "--slow", "nap", "{}", "server"]);
        let (case, target) = ToolCase::parse(&line).unwrap();
        let case = case.unwrap();

        assert_eq!(
            (case.call.tool.as_str(), case.expected.as_str()),
            ("add", "2")
        );
        assert_eq!(case.slow.unwrap().tool, "nap");
        assert_eq!(target, ["server"]);
    }

    #[test]
    fn without_tool_all_words_are_the_target() {
        let line = words(&["server", "--tool", "add", "{}", "2"]);

        assert_eq!(ToolCase::parse(&line).unwrap(), (None, &line[..]));
    }

    #[test]
    fn arguments_must_be_json() {
        let line = words(&["--tool", "add", "a=1", "2", "server"]);

        assert!(ToolCase::parse(&line).unwrap_err().contains("`add`"));
    }

    #[test]
    fn a_child_that_was_not_reaped_is_detected() {
        let mut child = std::process::Command::new("true").spawn().unwrap();

        let seen = ensure_no_children();

        child.wait().unwrap();
        assert!(seen.is_err() || !std::path::Path::new("/proc/self/stat").exists());
    }
}
