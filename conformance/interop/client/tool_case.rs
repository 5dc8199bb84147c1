//! What is checked of a server that has tools of its own instead of the fixture: one of them is called.

use std::task::Poll;

use bowline::Client;
use serde_json::Value;

use crate::checks::{Outcome, Result, ensure, text};

/// A call whose result is known, and perhaps one that takes long.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ToolCase {
    call: ToolCall,
    /// A part of the text that the call answers with.
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
    /// Reads `--tool NAME ARGUMENTS EXPECTED` and `--slow NAME ARGUMENTS` at the beginning of `words`, and
    /// returns the words after them. Without `--tool` there is no case.
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

    /// Lists the tools, all pages of them.
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

    /// Calls the tool and compares what it answers.
    pub(crate) async fn call(&self, client: &Client) -> Result<Outcome> {
        let ToolCall { tool, arguments } = &self.call;
        let answer = text(client, tool, arguments.clone()).await?;
        ensure(answer.contains(&self.expected), || {
            format!(
                "`{tool}` answers `{answer:.80}` instead of `{}`",
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
        // Hands the request over. A fast server may answer at once, which does not matter.
        let _ = std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await;
        match &self.slow {
            // When a later call is answered, the server has the earlier one too, and is at work on it.
            Some(_) => {
                self.call(client).await?;
            }
            // The connection's task has its turn, in which it writes the request.
            None => tokio::task::yield_now().await,
        }
        drop(call);
        // A server may answer once more before it ends from being cancelled.
        for _ in 0..CALLS_AFTER {
            self.call(client).await?;
        }
        Ok(Outcome::Ok)
    }
}

impl ToolCall {
    fn parse(tool: &str, arguments: &str) -> Result<Self, String> {
        let arguments = serde_json::from_str(arguments)
            .map_err(|error| format!("the arguments of `{tool}` are not JSON: {error}"))?;
        Ok(Self {
            tool: tool.to_owned(),
            arguments,
        })
    }
}

/// Fails if a child of this process is still there, were it only as a zombie. Where there is no `/proc`, none is seen.
pub(crate) fn ensure_no_children() -> Result<()> {
    let own_id = std::process::id().to_string();
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Ok(());
    };
    for process in processes.flatten() {
        // A process that ends meanwhile has no file any more.
        let stat = std::fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        // The name is in parentheses and may hold anything; after it come the state and the parent.
        let parent = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.split(' ').nth(1));
        ensure(parent != Some(own_id.as_str()), || {
            format!("the server has not ended: {stat:.60}")
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
    fn a_case_is_a_call_and_perhaps_a_slow_one() {
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
    fn without_a_tool_everything_is_the_target() {
        let line = words(&["server", "--tool", "add", "{}", "2"]);

        assert_eq!(ToolCase::parse(&line).unwrap(), (None, &line[..]));
    }

    #[test]
    fn arguments_are_json() {
        let line = words(&["--tool", "add", "a=1", "2", "server"]);

        assert!(ToolCase::parse(&line).unwrap_err().contains("`add`"));
    }

    #[test]
    fn a_child_that_was_not_waited_for_is_seen() {
        let mut child = std::process::Command::new("true").spawn().unwrap();

        let seen = ensure_no_children();

        child.wait().unwrap();
        assert!(seen.is_err() || !std::path::Path::new("/proc/self/stat").exists());
    }
}
