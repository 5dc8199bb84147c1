//! Questions of a server during a call: forms, addresses to open, and messages for a model.
//!
//! A person answers them at the terminal, or options answer them for a script. Without either, the command fails and
//! says which option is missing; it never waits for an answer that cannot come.

mod form;

mod terminal;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bowline::client::Host;
use bowline::types::{
    CreateMessageRequestParams, CreateMessageResult, ElicitAction, ElicitRequestFormParams,
    ElicitRequestUrlParams, ElicitResult, Root, SamplingMessageContentBlock, TextContent,
};
use bowline::{ErrorCode, RpcError};
use clap::Args;
use serde_json::{Map, Value};
use tokio::sync::Notify;

use crate::failure::Failure;
use crate::output::{Output, Style, visible, visible_line};
use crate::sign_in::open_browser;
use crate::status_line::StatusLine;
use crate::suggestion::Suggestion;
use form::Field;
use terminal::{Conversation, Terminal};

// How to answer questions of the server.
// No doc comment: it would be the description of every command with these options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Questions of the server")]
pub(crate) struct QuestionOptions {
    /// Answer a field of a form instead of asking, `key=value` (repeatable). Other fields get their defaults.
    #[arg(long, value_name = "ANSWER")]
    pub(crate) answer: Vec<String>,
    /// Refuse every question.
    #[arg(long, conflicts_with_all = ["answer", "accept_urls", "reply"])]
    pub(crate) refuse: bool,
    /// Agree to open addresses, which are printed to stderr, without asking.
    #[arg(long)]
    pub(crate) accept_urls: bool,
    /// Answer messages for a model (sampling) with this text instead of asking.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reply: Option<String>,
    /// A directory that the server may know as a root (repeatable).
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Vec<PathBuf>,
}

impl QuestionOptions {
    /// Checks the options.
    ///
    /// # Errors
    ///
    /// If an answer has no `=`, or a root does not exist.
    pub(crate) fn questions(
        &self,
        status: &StatusLine,
        output: Output,
    ) -> Result<Questions, Failure> {
        let answers = self
            .answer
            .iter()
            .map(|answer| match answer.split_once('=') {
                Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
                _ => Err(Failure::usage(format!(
                    "expected --answer key=value, got `{answer}`"
                ))),
            });
        let roots = self.root.iter().map(|root| {
            let path = std::path::absolute(root);
            let path = path.map_err(|error| {
                Failure::usage(format!("--root {}", root.display())).caused_by(error)
            })?;
            Ok(Root::new(file_uri(&path)))
        });
        let asked = Asked {
            answers: answers.collect::<Result<_, Failure>>()?,
            is_refused: self.refuse,
            accepts_urls: self.accept_urls,
            reply: self.reply.clone(),
            terminal: Terminal::new(status.clone()),
            status: status.clone(),
            output,
            unanswered: Mutex::new(None),
            is_unanswered: Notify::new(),
        };
        Ok(Questions {
            asked: Arc::new(asked),
            roots: roots.collect::<Result<_, Failure>>()?,
        })
    }
}

/// Answers the questions of one command. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Questions {
    asked: Arc<Asked>,
    roots: Vec<Root>,
}

#[derive(Debug)]
struct Asked {
    answers: Vec<(String, String)>,
    is_refused: bool,
    accepts_urls: bool,
    reply: Option<String>,
    terminal: Option<Terminal>,
    status: StatusLine,
    output: Output,
    /// The first question without an answer.
    unanswered: Mutex<Option<Failure>>,
    is_unanswered: Notify,
}

impl Questions {
    /// Returns the host that answers.
    pub(crate) fn host(&self) -> Host {
        let (form, url, sampling) = (self.asked.clone(), self.asked.clone(), self.asked.clone());
        let host = Host::new()
            .elicitation(move |params| {
                let asked = form.clone();
                async move { asked.answer_form(params).await }
            })
            .elicitation_url(move |params| {
                let asked = url.clone();
                async move { asked.answer_url(params).await }
            })
            .sampling(move |params| {
                let asked = sampling.clone();
                async move { asked.answer_sampling(params).await }
            });
        match self.roots.is_empty() {
            true => host,
            false => {
                let roots = self.roots.clone();
                host.roots(move || {
                    let roots = roots.clone();
                    async move { roots }
                })
            }
        }
    }

    /// Waits for a question without an answer, and returns the failure.
    ///
    /// # Cancel safety
    ///
    /// Safe: the failure is kept until it is returned.
    pub(crate) async fn unanswered(&self) -> Failure {
        loop {
            let notified = self.asked.is_unanswered.notified();
            let failure = self
                .asked
                .unanswered
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            match failure {
                Some(failure) => return failure,
                None => notified.await,
            }
        }
    }
}

impl Asked {
    async fn answer_form(&self, params: ElicitRequestFormParams) -> ElicitResult {
        if self.is_refused {
            return ElicitResult::new(ElicitAction::Decline);
        }
        let fields = form::fields(&params.requested_schema);
        if !self.answers.is_empty() {
            return match self.scripted_form(&fields) {
                Ok(content) => ElicitResult::accept(Value::Object(content)),
                Err(why) => {
                    self.fail(
                        &params.message,
                        &why,
                        "answer its fields, with --answer key=value",
                    )
                    .await
                }
            };
        }
        let Some(terminal) = &self.terminal else {
            let names: Vec<_> = fields
                .iter()
                .map(|field| format!("--answer {}=…", visible_line(field.name)))
                .collect();
            let hint = match names.is_empty() {
                true => "answer it at a terminal".to_owned(),
                false => format!("answer it, with {}", names.join(" ")),
            };
            return self
                .fail(&params.message, "stdin is not a terminal", &hint)
                .await;
        };
        let mut conversation = terminal.converse().await;
        self.ask_form(&params.message, &fields, &mut conversation)
            .await
    }

    /// Fills a form from `--answer`. Fields without an answer get their defaults from the host.
    fn scripted_form(&self, fields: &[Field<'_>]) -> Result<Map<String, Value>, String> {
        let mut content = Map::new();
        for field in fields {
            let given = self.answers.iter().rfind(|(key, _)| key == field.name);
            match given {
                Some((key, text)) => {
                    let value = field
                        .parse(text)
                        .map_err(|why| format!("--answer {key}: {why}"))?;
                    content.insert(key.clone(), value);
                }
                None if field.is_required && field.default().is_none() => {
                    return Err(format!(
                        "the field `{}` is required",
                        visible_line(field.name)
                    ));
                }
                None => {}
            }
        }
        Ok(content)
    }

    async fn ask_form(
        &self,
        message: &str,
        fields: &[Field<'_>],
        conversation: &mut Conversation<'_>,
    ) -> ElicitResult {
        let decline = || ElicitResult::new(ElicitAction::Decline);
        let cancel = || ElicitResult::new(ElicitAction::Cancel);
        let style = |style, text: &str| self.output.style_stderr(style, text);
        conversation.say(&style(
            Style::Bold,
            &format!("The server asks: {}", visible(message)),
        ));
        conversation.say(&style(Style::Dim, "(:decline refuses, :cancel cancels)"));
        let mut content = Map::new();
        for field in fields {
            for line in field.describe() {
                conversation.say(&line);
            }
            let default = field.default();
            let prompt = match &default {
                Some(default) => format!("[{}] >", visible_line(&default.to_string())),
                None => ">".to_owned(),
            };
            loop {
                let Some(line) = conversation.ask(&prompt).await else {
                    return cancel();
                };
                match line.trim() {
                    ":decline" => return decline(),
                    ":cancel" => return cancel(),
                    "" if default.is_some() || !field.is_required => break,
                    "" => conversation.say("this field is required"),
                    text => match field.parse(text) {
                        Ok(value) => {
                            content.insert(field.name.to_owned(), value);
                            break;
                        }
                        Err(why) => conversation.say(&style(Style::Red, &why)),
                    },
                }
            }
        }
        if fields.is_empty() {
            let answer = conversation.ask("Agree? [y/N]").await.unwrap_or_default();
            if !is_yes(&answer) {
                return decline();
            }
        }
        ElicitResult::accept(Value::Object(content))
    }

    async fn answer_url(&self, params: ElicitRequestUrlParams) -> ElicitResult {
        if self.is_refused {
            return ElicitResult::new(ElicitAction::Decline);
        }
        let text = format!(
            "The server asks you to open an address: {}\n{}",
            visible(&params.message),
            visible_line(&params.url)
        );
        if self.accepts_urls {
            self.status.print(&text);
            return ElicitResult::new(ElicitAction::Accept);
        }
        let Some(terminal) = &self.terminal else {
            let hint = "agree to visit addresses, with --accept-urls";
            return self
                .fail(&params.message, "stdin is not a terminal", hint)
                .await;
        };
        let mut conversation = terminal.converse().await;
        conversation.say(&text);
        let answer = conversation.ask("Open it in a browser? [y/N]").await;
        match answer {
            Some(answer) if is_yes(&answer) => {
                open_browser(&params.url);
                ElicitResult::new(ElicitAction::Accept)
            }
            Some(_) => ElicitResult::new(ElicitAction::Decline),
            None => ElicitResult::new(ElicitAction::Cancel),
        }
    }

    async fn answer_sampling(
        &self,
        params: CreateMessageRequestParams,
    ) -> Result<CreateMessageResult, RpcError> {
        let reply = |text: String| Ok(CreateMessageResult::new("a person", TextContent::new(text)));
        let refused = || Err(RpcError::new(ErrorCode::USER_REJECTED, "the user refused"));
        if self.is_refused {
            return refused();
        }
        if let Some(text) = &self.reply {
            return reply(text.clone());
        }
        let Some(terminal) = &self.terminal else {
            let (what, hint) = (
                "for the reply of a model",
                "give the reply, with --reply TEXT",
            );
            return self.fail(what, "stdin is not a terminal", hint).await;
        };
        let mut conversation = terminal.converse().await;
        let title = "The server asks for the reply of a model to:";
        conversation.say(&self.output.style_stderr(Style::Bold, title));
        for line in sampling_lines(&params) {
            conversation.say(&line);
        }
        conversation.say("Type a reply; an empty line ends it. An empty reply refuses.");
        let mut lines = Vec::new();
        while let Some(line) = conversation.ask(">").await {
            if line.is_empty() {
                break;
            }
            lines.push(line);
        }
        match lines.is_empty() {
            true => refused(),
            false => reply(lines.join("\n")),
        }
    }

    /// Records that a question cannot be answered, which ends the command. Never returns: the server gets no answer that
    /// it could go on with, and the call is cancelled.
    async fn fail<T>(&self, question: &str, why: &str, hint: &str) -> T {
        let message = format!("the server asks `{}`, and {why}", visible_line(question));
        let failure = Failure::usage(message).hint(hint);
        // A form or an address can be declined, which tools expect. Without the reply of a model, most of them fail.
        let is_declinable = self.answers.is_empty() && question != SAMPLING;
        self.set_unanswered(match is_declinable {
            true => failure.suggest(Suggestion::Refuse),
            false => failure,
        });
        // A permit is kept if the command does not wait yet.
        self.is_unanswered.notify_one();
        std::future::pending().await
    }

    fn set_unanswered(&self, failure: Failure) {
        let mut unanswered = self
            .unanswered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        unanswered.get_or_insert(failure);
    }
}

fn sampling_lines(params: &CreateMessageRequestParams) -> Vec<String> {
    let system = params
        .system_prompt
        .as_ref()
        .map(|text| format!("  [system] {}", visible(text)));
    let messages = params.messages.iter().flat_map(|message| {
        let role = serde_json::to_value(message.role).unwrap_or_default();
        let role = role.as_str().unwrap_or("?").to_owned();
        message
            .content
            .blocks()
            .iter()
            .map(move |block| match block {
                SamplingMessageContentBlock::Text(content) => {
                    format!("  [{role}] {}", visible(&content.text))
                }
                SamplingMessageContentBlock::Image(content) => {
                    format!("  [{role}] an image ({})", visible_line(&content.mime_type))
                }
                SamplingMessageContentBlock::Audio(content) => {
                    format!("  [{role}] audio ({})", visible_line(&content.mime_type))
                }
                _ => format!("  [{role}] content of another kind"),
            })
    });
    system.into_iter().chain(messages).collect()
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

/// Returns the `file:` URI of an absolute path.
fn file_uri(path: &std::path::Path) -> String {
    let path = path.to_string_lossy().replace('\\', "/");
    let mut uri = String::from(if path.starts_with('/') {
        "file://"
    } else {
        "file:///"
    });
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' | b':' => {
                uri.push(byte.into());
            }
            byte => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

const SAMPLING: &str = "for the reply of a model";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn questions(options: &QuestionOptions) -> Questions {
        let output = Output::plain(80);
        options.questions(&StatusLine::new(output), output).unwrap()
    }

    fn form() -> ElicitRequestFormParams {
        serde_json::from_value(json!({
            "message": "Who?",
            "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "default": 3}}, "required": ["name", "age"]},
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn answers_of_a_script_fill_forms() {
        let options = QuestionOptions {
            answer: vec!["name=Ada".to_owned(), "other=1".to_owned()],
            ..QuestionOptions::default()
        };

        let result = questions(&options).asked.answer_form(form()).await;

        let content: Value = result.content.unwrap().decode().unwrap();
        assert_eq!(
            content,
            json!({"name": "Ada"}),
            "the host adds the defaults"
        );
    }

    #[tokio::test]
    async fn a_question_without_an_answer_fails_instead_of_hanging() {
        for (answer, reason) in [("age=7", "`name` is required"), ("age=x", "--answer age")] {
            let answer = vec![answer.to_owned()];
            let questions = questions(&QuestionOptions {
                answer,
                ..QuestionOptions::default()
            });

            let failure = tokio::select! {
                biased; // an answer would be wrong
                answer = questions.asked.answer_form(form()) => panic!("{answer:?}"),
                failure = questions.unanswered() => failure,
            };

            assert!(failure.to_string().contains(reason), "{failure}");
        }
    }

    #[tokio::test]
    async fn every_question_can_be_refused() {
        let refuse = QuestionOptions {
            refuse: true,
            ..QuestionOptions::default()
        };
        let asked = questions(&refuse).asked;

        assert_eq!(
            asked.answer_form(form()).await.action,
            ElicitAction::Decline
        );
        let url = ElicitRequestUrlParams::new("?", "https://x.example");
        assert_eq!(asked.answer_url(url).await.action, ElicitAction::Decline);
        let sampling = CreateMessageRequestParams::new(Vec::new(), 10);
        assert_eq!(
            asked.answer_sampling(sampling).await.unwrap_err().code,
            ErrorCode::USER_REJECTED
        );
    }

    #[test]
    fn roots_are_file_uris() {
        assert_eq!(
            file_uri(std::path::Path::new("/a b/ü")),
            "file:///a%20b/%C3%BC"
        );
        assert_eq!(file_uri(std::path::Path::new("C:\\x")), "file:///C:/x");
    }
}
