//! Prints content blocks: those of tool results, prompts and resources.

use std::path::PathBuf;

use bowline::types::{ContentBlock, ResourceContents};

use crate::failure::Failure;
use crate::media::{inline_image, save};
use crate::ordered_json::OrderedJson;
use crate::output::{Output, Style, visible, visible_line};

/// Where and how content is printed.
#[derive(Clone, Debug)]
pub(crate) struct ContentPrinter {
    pub(crate) output: Output,
    /// For binary content that the terminal cannot show.
    pub(crate) folder: PathBuf,
    /// The beginning of the names of files.
    pub(crate) stem: String,
}

impl ContentPrinter {
    /// Prints a block.
    ///
    /// # Errors
    ///
    /// If stdout is closed, or a file cannot be written.
    pub(crate) fn print(&self, block: &ContentBlock) -> Result<(), Failure> {
        match block {
            ContentBlock::Text(content) => self.text(&content.text),
            ContentBlock::Image(content) => match content.bytes() {
                Ok(bytes) => self.binary(&bytes, &content.mime_type, &self.stem),
                Err(error) => self.note(&format!("an image that is not base64: {error}")),
            },
            ContentBlock::Audio(content) => match content.bytes() {
                Ok(bytes) => self.binary(&bytes, &content.mime_type, &self.stem),
                Err(error) => self.note(&format!("audio that is not base64: {error}")),
            },
            ContentBlock::ResourceLink(link) => {
                let (uri, name) = (visible_line(&link.0.uri), visible_line(&link.0.name));
                let link = self.output.style(Style::Cyan, uri);
                Ok(self.output.line(format!("{link}  ({name})"))?)
            }
            ContentBlock::Resource(embedded) => self.resource(&embedded.resource),
            other => {
                let json = serde_json::to_string(other).unwrap_or_default();
                Ok(self.output.line(visible(&json))?)
            }
        }
    }

    /// Prints the contents of a resource.
    ///
    /// # Errors
    ///
    /// If stdout is closed, or a file cannot be written.
    pub(crate) fn resource(&self, contents: &ResourceContents) -> Result<(), Failure> {
        match contents {
            ResourceContents::Text(text) => self.text(&text.text),
            ResourceContents::Blob(blob) => {
                let mime_type = blob.mime_type.as_deref().unwrap_or_default();
                match blob.bytes() {
                    Ok(bytes) => self.binary(&bytes, mime_type, &blob.uri),
                    Err(error) => self.note(&format!("a blob that is not base64: {error}")),
                }
            }
        }
    }

    fn text(&self, text: &str) -> Result<(), Failure> {
        Ok(self
            .output
            .line(visible(text.strip_suffix('\n').unwrap_or(text)))?)
    }

    fn binary(&self, bytes: &[u8], mime_type: &str, stem: &str) -> Result<(), Failure> {
        if let Some(image) = inline_image(bytes, mime_type, self.output) {
            return Ok(self.output.line(image)?);
        }
        let path = save(bytes, stem, mime_type, &self.folder).map_err(|error| {
            let folder = self.folder.display();
            Failure::other(format!("failed to save {} bytes in {folder}", bytes.len()))
                .caused_by(error)
                .hint("save it in another folder, with --save-to DIR")
        })?;
        let kind = if mime_type.is_empty() {
            "binary"
        } else {
            mime_type
        };
        let text = format!(
            "saved {} ({}, {} bytes)",
            path.display(),
            visible_line(kind),
            bytes.len()
        );
        Ok(self.output.line(text)?)
    }

    fn note(&self, text: &str) -> Result<(), Failure> {
        Ok(self
            .output
            .line(self.output.style(Style::Dim, format!("[{text}]")))?)
    }

    /// Prints JSON on several lines.
    ///
    /// # Errors
    ///
    /// If stdout is closed.
    pub(crate) fn json(&self, json: &str) -> Result<(), Failure> {
        let pretty = OrderedJson::parse(json).pretty();
        let lines = pretty.lines().map(|line| self.json_line(&visible(line)));
        Ok(self.output.line(lines.collect::<Vec<_>>().join("\n"))?)
    }

    /// Colours the key of a line of pretty JSON.
    fn json_line(&self, line: &str) -> String {
        let indent = line.len() - line.trim_start().len();
        let (space, rest) = line.split_at(indent);
        match rest.split_once("\": ") {
            Some((key, value)) if rest.starts_with('"') && !key[1..].contains('"') => {
                format!(
                    "{space}{}: {value}",
                    self.output.style(Style::Cyan, format!("{key}\""))
                )
            }
            _ => line.to_owned(),
        }
    }
}
