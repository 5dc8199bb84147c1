//! Changes one entry of a configuration file, and keeps the comments and the layout of everything else.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use serde_json::{Map, Value, json};
use toml_edit::{DocumentMut, Item, Key, TableLike};

use crate::hosts::FileFormat;

/// A change of an entry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Edit {
    Set(&'static str, Value),
    Rename(&'static str, &'static str),
    /// Inserts words before the others of `args`.
    PrependArgs(Vec<String>),
}

/// Where an entry is: the keys from the root, its name last.
pub(crate) type EntryPath = Vec<String>;

/// Finds the entry of a server. `project` is the folder of a project that the file has servers for.
///
/// # Errors
///
/// If the file cannot be read as its format, or has no such entry.
pub(crate) fn find_entry(
    text: &str,
    format: FileFormat,
    project: Option<&str>,
    name: &str,
) -> Result<(EntryPath, Map<String, Value>), String> {
    let root = parse(text, format)?;
    let mut candidates: Vec<Vec<String>> = Vec::new();
    if let Some(project) = project {
        for path in [project.to_owned(), project.replace('\\', "/")] {
            candidates.push(vec!["projects".to_owned(), path, "mcpServers".to_owned()]);
        }
    }
    let keys = PLACES
        .iter()
        .map(|keys| keys.iter().map(|key| (*key).to_owned()).collect());
    candidates.extend(keys);
    for mut path in candidates {
        path.push(name.to_owned());
        let entry = path.iter().try_fold(&root, |node, key| node.get(key));
        if let Some(Value::Object(entry)) = entry {
            return Ok((path, entry.clone()));
        }
    }
    Err(format!("no entry `{name}`"))
}

/// Applies the changes to the entry at `path`.
///
/// # Errors
///
/// If the format cannot be changed, or anything else than the entry would change.
pub(crate) fn apply(
    text: &str,
    format: FileFormat,
    path: &[String],
    edits: &[Edit],
) -> Result<String, String> {
    let changed = match format {
        FileFormat::Json => apply_to_json(text, path, edits)?,
        FileFormat::Toml => apply_to_toml(text, path, edits)?,
        FileFormat::Yaml => return Err("YAML files are not changed".to_owned()),
    };
    // A mistake of an editor must not cost the user their other servers.
    let (before, after) = (parse(text, format)?, parse(&changed, format)?);
    match without(before, path) == without(after, path) {
        true => Ok(changed),
        false => Err("more than the entry would change".to_owned()),
    }
}

fn without(mut root: Value, path: &[String]) -> Value {
    if let Some((name, parents)) = path.split_last() {
        let parent = parents
            .iter()
            .try_fold(&mut root, |node, key| node.get_mut(key));
        if let Some(Value::Object(members)) = parent {
            members.remove(name);
        }
    }
    root
}

fn parse(text: &str, format: FileFormat) -> Result<Value, String> {
    match format {
        FileFormat::Json => {
            let root = parse_json(text)?;
            Ok(root.to_serde_value().unwrap_or_else(|| json!({})))
        }
        FileFormat::Toml => Ok(table_value(parse_toml(text)?.as_table())),
        FileFormat::Yaml => Err("YAML files are not changed".to_owned()),
    }
}

fn parse_json(text: &str) -> Result<CstRootNode, String> {
    CstRootNode::parse(text, &ParseOptions::default()).map_err(|error| error.to_string())
}

fn parse_toml(text: &str) -> Result<DocumentMut, String> {
    text.parse()
        .map_err(|error: toml_edit::TomlError| error.message().to_owned())
}

fn apply_to_json(text: &str, path: &[String], edits: &[Edit]) -> Result<String, String> {
    let root = parse_json(text)?;
    let start = root.object_value().ok_or("the file is not an object")?;
    let mut entry = start;
    for key in path {
        // Hosts differ in which of them they read.
        if named(&entry, key) > 1 {
            return Err(format!("`{key}` occurs twice"));
        }
        entry = entry
            .object_value(key)
            .ok_or("the entry is not an object")?;
    }
    for edit in edits {
        match edit {
            Edit::Set(key, value) => match entry.get(key) {
                Some(member) => member.set_value(input(value)),
                None => drop(entry.append(key, input(value))),
            },
            Edit::Rename(from, to) => rename(&entry, from, to)?,
            Edit::PrependArgs(words) => prepend(&entry, words),
        }
    }
    Ok(root.to_string())
}

/// Counts the members of this name.
fn named(object: &CstObject, key: &str) -> usize {
    let names = object.properties().into_iter().filter_map(|it| it.name());
    let names = names.filter_map(|it| it.decoded_value().ok());
    names.filter(|name| name == key).count()
}

fn rename(entry: &CstObject, from: &str, to: &str) -> Result<(), String> {
    let member = entry
        .get(from)
        .ok_or_else(|| format!("no member `{from}`"))?;
    let name = member.name().and_then(|name| name.as_string_lit());
    let name = name.ok_or_else(|| format!("`{from}` is not a string"))?;
    name.set_raw_value(format!("\"{to}\""));
    Ok(())
}

fn prepend(entry: &CstObject, words: &[String]) {
    match entry.array_value("args") {
        Some(args) => {
            for (index, word) in words.iter().enumerate() {
                args.insert(index, word.as_str().into());
            }
        }
        None => drop(entry.append("args", input(&json!(words)))),
    }
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(input).collect()),
        Value::Object(members) => {
            let members = members
                .iter()
                .map(|(name, value)| (name.clone(), input(value)));
            CstInputValue::Object(members.collect())
        }
    }
}

fn apply_to_toml(text: &str, path: &[String], edits: &[Edit]) -> Result<String, String> {
    let mut document = parse_toml(text)?;
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for key in path {
        let next = table.get_mut(key).and_then(Item::as_table_like_mut);
        table = next.ok_or("the entry is not a table")?;
    }
    for edit in edits {
        match edit {
            Edit::Set(key, value) => set(table, key, value),
            Edit::Rename(from, to) => rename_in_toml(table, from, to)?,
            Edit::PrependArgs(words) => {
                if let Some(args) = table.get_mut("args").and_then(Item::as_array_mut) {
                    prepend_to_array(args, words);
                } else {
                    set(table, "args", &json!(words));
                }
            }
        }
    }
    Ok(document.to_string())
}

/// Inserts words, and lays them out as the element that was the first.
fn prepend_to_array(args: &mut toml_edit::Array, words: &[String]) {
    let first = args.get(0).map(|it| it.decor().clone()).unwrap_or_default();
    let prefix = first
        .prefix()
        .and_then(|it| it.as_str())
        .unwrap_or_default();
    // On one line there is a space between elements, and none before the first one.
    let between = if prefix.contains('\n') { prefix } else { " " }.to_owned();
    for (index, word) in words.iter().enumerate() {
        args.insert(index, word.as_str());
    }
    for index in 0..=words.len() {
        if let Some(element) = args.get_mut(index) {
            let prefix = if index == 0 { prefix } else { &between };
            element.decor_mut().set_prefix(prefix);
        }
    }
}

fn set(table: &mut dyn TableLike, key: &str, value: &Value) {
    let Some(mut value) = toml_value(value) else {
        return;
    };
    match table.get_mut(key).and_then(Item::as_value_mut) {
        Some(old) => {
            // Spaces and a comment behind it.
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        None => drop(table.insert(key, Item::Value(value))),
    }
}

fn rename_in_toml(table: &mut dyn TableLike, from: &str, to: &str) -> Result<(), String> {
    let missing = || format!("no member `{from}`");
    let decor = table
        .key(from)
        .map(|key| key.leaf_decor().clone())
        .ok_or_else(missing)?;
    let item = table.remove(from).ok_or_else(missing)?;
    let key = Key::new(to).with_leaf_decor(decor);
    table.entry_format(&key).or_insert(item);
    Ok(())
}

fn toml_value(value: &Value) -> Option<toml_edit::Value> {
    Some(match value {
        Value::Bool(value) => (*value).into(),
        Value::String(text) => text.as_str().into(),
        Value::Number(number) => number.as_i64()?.into(),
        Value::Array(items) => items
            .iter()
            .map(toml_value)
            .collect::<Option<toml_edit::Array>>()?
            .into(),
        Value::Null | Value::Object(_) => return None,
    })
}

fn table_value(table: &dyn TableLike) -> Value {
    let members = table
        .iter()
        .map(|(key, item)| (key.to_owned(), item_value(item)));
    Value::Object(members.collect())
}

fn item_value(item: &Item) -> Value {
    if let Some(table) = item.as_table_like() {
        return table_value(table);
    }
    if let Some(tables) = item.as_array_of_tables() {
        return tables.iter().map(|table| table_value(table)).collect();
    }
    item.as_value().map_or(Value::Null, plain_value)
}

fn plain_value(value: &toml_edit::Value) -> Value {
    match value {
        toml_edit::Value::String(text) => json!(text.value()),
        toml_edit::Value::Integer(number) => json!(number.value()),
        toml_edit::Value::Float(number) => json!(number.value()),
        toml_edit::Value::Boolean(value) => json!(value.value()),
        toml_edit::Value::Datetime(time) => json!(time.value().to_string()),
        toml_edit::Value::Array(items) => items.iter().map(plain_value).collect(),
        toml_edit::Value::InlineTable(table) => table_value(table),
    }
}

/// Where hosts keep their servers.
const PLACES: &[&[&str]] = &[
    &["mcpServers"],
    &["servers"],
    &["context_servers"],
    &["mcp_servers"],
    &["mcp", "servers"],
    &["mcp"],
    &["extensions"],
];

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"{
  // my servers
  "mcpServers": {
    "files": {
      "command": "npx files", // the command
      "env": {"KEY": "1"},
    },
    "other": {"command": "b"}
  },
  "theme": "dark",
}
"#;

    fn edited(text: &str, format: FileFormat, edits: &[Edit]) -> String {
        let (path, _) = find_entry(text, format, None, "files").unwrap();
        apply(text, format, &path, edits).unwrap()
    }

    #[test]
    fn json_keeps_its_comments_and_everything_else() {
        let changed = edited(
            JSON,
            FileFormat::Json,
            &[
                Edit::Set("command", json!("npx")),
                Edit::PrependArgs(vec!["-y".into(), "files".into()]),
            ],
        );

        assert!(
            changed.contains(r#""command": "npx", // the command"#),
            "{changed}"
        );
        assert!(changed.contains("// my servers"), "{changed}");
        assert!(
            changed.contains(r#""other": {"command": "b"}"#),
            "{changed}"
        );
        let (_, entry) = find_entry(&changed, FileFormat::Json, None, "files").unwrap();
        assert_eq!(entry["args"], json!(["-y", "files"]));
    }

    #[test]
    fn members_are_renamed_in_place() {
        let text = r#"{"mcpServers": {"files": {"url": "https://a.example", "x": 1}}}"#;

        let changed = edited(text, FileFormat::Json, &[Edit::Rename("url", "serverUrl")]);

        assert_eq!(
            changed,
            r#"{"mcpServers": {"files": {"serverUrl": "https://a.example", "x": 1}}}"#
        );
    }

    #[test]
    fn toml_keeps_its_comments_and_everything_else() {
        let text = "# mine\nmodel = \"x\"\n\n[mcp_servers.files] # files\ncommand = \"npx\" # run\nargs = [\"files\"]\n\n[mcp_servers.other]\ncommand = \"b\"\n";

        let edits = [
            Edit::PrependArgs(vec!["-y".into()]),
            Edit::Set("command", json!("/bin/npx")),
            Edit::Set("enabled", json!(true)),
        ];
        let changed = edited(text, FileFormat::Toml, &edits);

        assert_eq!(
            changed,
            "# mine\nmodel = \"x\"\n\n[mcp_servers.files] # files\ncommand = \"/bin/npx\" # run\nargs = [\"-y\", \"files\"]\nenabled = true\n\n[mcp_servers.other]\ncommand = \"b\"\n"
        );
    }

    #[test]
    fn a_list_of_several_lines_stays_one() {
        let text = "[mcp_servers.files]\nargs = [\n  \"a\",\n]\n";

        let changed = edited(
            text,
            FileFormat::Toml,
            &[Edit::PrependArgs(vec!["-y".into()])],
        );

        assert_eq!(
            changed,
            "[mcp_servers.files]\nargs = [\n  \"-y\",\n  \"a\",\n]\n"
        );
    }

    #[test]
    fn toml_members_are_renamed() {
        let text = "[mcp_servers.files]\nserverUrl = \"https://a.example\"\n";

        let changed = edited(text, FileFormat::Toml, &[Edit::Rename("serverUrl", "url")]);

        assert_eq!(
            changed,
            "[mcp_servers.files]\nurl = \"https://a.example\"\n"
        );
    }

    #[test]
    fn damaged_files_are_errors_or_stay_as_they_are_elsewhere() {
        let toml = "[mcp_servers.files]\ncommand = \"a\"\nargs = [\"b\"]\n[mcp_servers.other]\nx = { y = 1 }\n";
        for (text, format) in [(JSON, FileFormat::Json), (toml, FileFormat::Toml)] {
            for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
                let damaged = &text[..end];
                let Ok((path, _)) = find_entry(damaged, format, None, "files") else {
                    continue;
                };
                let edits = [
                    Edit::Set("command", json!("c")),
                    Edit::PrependArgs(vec!["-y".into()]),
                ];
                let changed = apply(damaged, format, &path, &edits).unwrap();
                assert!(
                    find_entry(&changed, format, None, "files").is_ok(),
                    "{changed}"
                );
            }
        }
    }

    #[test]
    fn the_entry_of_a_project_is_found() {
        let text = r#"{"mcpServers": {}, "projects": {"C:/p": {"mcpServers": {"files": {"command": "a"}}}}}"#;

        let (path, _) = find_entry(text, FileFormat::Json, Some("C:\\p"), "files").unwrap();

        assert_eq!(path, ["projects", "C:/p", "mcpServers", "files"]);
        assert!(find_entry(text, FileFormat::Json, None, "files").is_err());
        assert!(find_entry("{", FileFormat::Json, None, "files").is_err());
    }
}
