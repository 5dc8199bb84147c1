//! `ScriptedHost`: the user and the model of the client, and the log messages that it has received.

use std::sync::{Arc, Mutex, MutexGuard};

use bowline::RpcError;
use bowline::client::Host;
use bowline::types::{
    CreateMessageRequestParams, CreateMessageResult, ElicitAction, ElicitResult, LoggingLevel,
    LoggingMessageNotificationParams, SamplingMessageContentBlock, TextContent,
};

/// A user who answers elicitations with the configured result, a model that repeats the prompt, and a record of log
/// messages. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct ScriptedHost(Arc<Mutex<HostState>>);

#[derive(Default)]
struct HostState {
    answer: Option<ElicitResult>,
    log: Vec<LogMessage>,
}

/// A received log message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LogMessage {
    pub(crate) level: LoggingLevel,
    pub(crate) logger: Option<String>,
    /// JSON text.
    pub(crate) data: String,
}

impl ScriptedHost {
    pub(crate) fn host(&self) -> Host {
        let user = self.clone();
        Host::new()
            .elicitation(move |_| {
                let answer = user.answer();
                async { answer }
            })
            .sampling(|asked| {
                let written = written_by_model(&asked);
                async { written }
            })
    }

    pub(crate) fn set_answer(&self, answer: ElicitResult) {
        self.state().answer = Some(answer);
    }

    pub(crate) fn record(&self, message: LoggingMessageNotificationParams) {
        self.state().log.push(LogMessage {
            level: message.level,
            logger: message.logger,
            data: message.data.as_str().to_owned(),
        });
    }

    /// Returns the log messages since the last call of [`clear_log`](Self::clear_log).
    pub(crate) fn log(&self) -> Vec<LogMessage> {
        self.state().log.clone()
    }

    pub(crate) fn clear_log(&self) {
        self.state().log.clear();
    }

    fn answer(&self) -> ElicitResult {
        let answer = self.state().answer.clone();
        answer.unwrap_or_else(|| ElicitResult::new(ElicitAction::Cancel))
    }

    fn state(&self) -> MutexGuard<'_, HostState> {
        self.0.lock().unwrap_or_else(|poison| poison.into_inner())
    }
}

/// The message of the model contains the prompt, so that one for another prompt is noticed.
fn written_by_model(asked: &CreateMessageRequestParams) -> Result<CreateMessageResult, RpcError> {
    let prompt = asked.messages.first().map(|first| first.content.blocks());
    match prompt {
        Some([SamplingMessageContentBlock::Text(prompt)]) => {
            let text = format!("about {}", prompt.text);
            Ok(CreateMessageResult::new("scripted", TextContent::new(text)))
        }
        other => Err(RpcError::internal(format!("unexpected prompt: {other:?}"))),
    }
}
