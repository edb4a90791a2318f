//! What a file says, whichever language it is in: texts, lists and tables. Numbers and truths are texts, to be read by who knows what they
//! should be.

use saphyr::{LoadableYamlNode as _, Scalar, Yaml};

use super::nearest::unknown;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Value {
    Nothing,
    Text(String),
    List(Vec<Self>),
    Table(Table),
}

/// The settings of one section, taken out as they are understood.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Table(Vec<(String, Value)>);

/// So deep is no file that means well.
const DEEPEST: usize = 16;

impl Value {
    pub(super) fn of_toml(text: &str) -> Result<Self, String> {
        let table = text.parse::<toml::Table>().map_err(|error| {
            let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            format!("line {line} is not TOML: {}; write for example store = \"redis://127.0.0.1\"", error.message())
        })?;
        Self::toml(toml::Value::Table(table), 0)
    }

    fn toml(value: toml::Value, depth: usize) -> Result<Self, String> {
        if depth > DEEPEST {
            return Err("is nested too deeply".to_owned());
        }
        Ok(match value {
            toml::Value::String(text) => Self::Text(text),
            toml::Value::Array(items) => {
                Self::List(items.into_iter().map(|item| Self::toml(item, depth + 1)).collect::<Result<_, _>>()?)
            }
            toml::Value::Table(table) => Self::Table(Table(
                table.into_iter().map(|(key, value)| Ok((key, Self::toml(value, depth + 1)?))).collect::<Result<_, String>>()?,
            )),
            toml::Value::Integer(number) => Self::Text(number.to_string()),
            toml::Value::Boolean(truth) => Self::Text(truth.to_string()),
            toml::Value::Float(_) | toml::Value::Datetime(_) => {
                return Err("holds a number with a fraction, or a date; no setting is one".to_owned());
            }
        })
    }

    pub(super) fn of_yaml(text: &str) -> Result<Self, String> {
        let documents = Yaml::load_from_str(text).map_err(|error| format!("line {} is not YAML", error.marker().line()))?;
        match &documents[..] {
            [] => Ok(Self::Table(Table::default())),
            [one] => Self::yaml(one, 0),
            _ => Err("holds several documents; keep one".to_owned()),
        }
    }

    fn yaml(value: &Yaml<'_>, depth: usize) -> Result<Self, String> {
        if depth > DEEPEST {
            return Err("is nested too deeply".to_owned());
        }
        Ok(match value {
            Yaml::Value(Scalar::Null) => Self::Nothing,
            Yaml::Value(Scalar::Boolean(value)) => Self::Text(value.to_string()),
            Yaml::Value(Scalar::Integer(value)) => Self::Text(value.to_string()),
            Yaml::Value(Scalar::FloatingPoint(value)) => Self::Text(value.to_string()),
            Yaml::Value(Scalar::String(value)) => Self::Text(value.to_string()),
            Yaml::Representation(value, ..) => Self::Text(value.to_string()),
            // A class with nothing to say of it is its name.
            Yaml::Tagged(class, value) => match Self::yaml(value, depth + 1)? {
                Self::Table(table) if table.is_empty() => Self::Text(format!("!{}", class.suffix)),
                value => value,
            },
            Yaml::Sequence(items) => Self::List(items.iter().map(|item| Self::yaml(item, depth + 1)).collect::<Result<_, _>>()?),
            Yaml::Mapping(entries) => {
                let entry = |(key, value): (&Yaml<'_>, &Yaml<'_>)| match Self::yaml(key, depth + 1)? {
                    Self::Text(key) => Ok((key, Self::yaml(value, depth + 1)?)),
                    _ => Err("a setting has no name".to_owned()),
                };
                Self::Table(Table(entries.iter().map(entry).collect::<Result<_, _>>()?))
            }
            Yaml::Alias(_) | Yaml::BadValue => return Err("holds something that is not understood".to_owned()),
        })
    }

    /// With `${VARIABLE}` and `${VARIABLE:-default}` replaced, in values only: what a variable holds is never read as a setting.
    pub(super) fn filled(self, environment: &dyn Fn(&str) -> Option<String>) -> Result<Self, String> {
        Ok(match self {
            Self::Nothing => self,
            Self::Text(text) => Self::Text(fill(&text, environment)?),
            Self::List(items) => Self::List(items.into_iter().map(|item| item.filled(environment)).collect::<Result<_, _>>()?),
            Self::Table(Table(entries)) => Self::Table(Table(
                entries.into_iter().map(|(key, value)| Ok((key, value.filled(environment)?))).collect::<Result<_, String>>()?,
            )),
        })
    }

    /// Whether a password stands here, and not only the name of a variable that holds it.
    pub(super) fn holds_password(&self) -> bool {
        let is_secret =
            |key: &str, text: &str| key.to_lowercase().ends_with("password") && !(text.starts_with("${") && text.ends_with('}'));
        match self {
            Self::Nothing => false,
            Self::Text(text) => is_in_url(text),
            Self::List(items) => items.iter().any(Self::holds_password),
            Self::Table(Table(entries)) => entries.iter().any(|(key, value)| match value {
                Self::Text(text) => is_secret(key, text) || is_in_url(text),
                other => other.holds_password(),
            }),
        }
    }

    /// The sections of a whole file.
    pub(super) fn table(self) -> Result<Table, String> {
        match self {
            Self::Table(table) => Ok(table),
            _ => Err("holds no settings; write for example store = \"redis://127.0.0.1\"".to_owned()),
        }
    }
}

impl Table {
    /// Takes a setting out. One without a value counts as not there.
    fn take(&mut self, key: &str) -> Option<Value> {
        let at = self.0.iter().position(|(known, _)| known == key)?;
        Some(self.0.swap_remove(at).1).filter(|value| *value != Value::Nothing)
    }

    pub(super) fn text(&mut self, key: &str) -> Result<Option<String>, String> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(_) => Err(format!("{key} is not a text or a number")),
        }
    }

    /// A list of texts; one text is a list of what stands between its commas.
    pub(super) fn texts(&mut self, key: &str) -> Result<Vec<String>, String> {
        match self.take(key) {
            None => Ok(Vec::new()),
            Some(Value::Text(text)) => Ok(text.split(',').map(|part| part.trim().to_owned()).collect()),
            Some(Value::List(items)) => items
                .into_iter()
                .map(|item| match item {
                    Value::Text(text) => Ok(text),
                    _ => Err(format!("{key} holds something that is not a text")),
                })
                .collect(),
            Some(_) => Err(format!("{key} is not a list")),
        }
    }

    pub(super) fn section(&mut self, key: &str) -> Result<Option<Self>, String> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Table(table)) => Ok(Some(table)),
            Some(_) => Err(format!("{key} is not a section with settings of its own")),
        }
    }

    /// Yes or no, or a section that says more.
    pub(super) fn switch(&mut self, key: &str) -> Result<Option<Self>, String> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Table(table)) => Ok(Some(table)),
            Some(Value::Text(text)) if text == "true" => Ok(Some(Self::default())),
            Some(Value::Text(text)) if text == "false" => Ok(None),
            Some(_) => Err(format!("{key} is true, false or a section")),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All that stands here is known, to us or to somebody else; if not, the nearest of what there is is named.
    pub(super) fn knows(&self, understood: &[&str], ignored: &[&str]) -> Result<(), String> {
        let known = [understood, ignored].concat();
        let strange = self.0.iter().map(|(key, _)| key.as_str()).filter(|key| !known.contains(key)).min();
        strange.map_or(Ok(()), |key| Err(unknown(key, &known)))
    }
}

/// Whether a URL has a password: `scheme://user:password@host`.
fn is_in_url(text: &str) -> bool {
    text.split("://").skip(1).any(|rest| {
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        authority
            .rsplit_once('@')
            .and_then(|(who, _)| who.split_once(':'))
            .is_some_and(|(_, password)| !password.starts_with("${"))
    })
}

fn fill(text: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let (mut filled, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once("${") {
        let (inside, behind) = after.split_once('}').ok_or("a ${ has no }")?;
        let (variable, default) = inside.split_once(":-").map_or((inside, None), |(variable, default)| (variable, Some(default)));
        let value = environment(variable).filter(|value| !value.is_empty() || default.is_none());
        filled.push_str(before);
        match value.as_deref().or(default) {
            Some(value) => filled.push_str(value),
            None => return Err(format!("the variable {variable} is not set; set it, or write ${{{variable}:-default}}")),
        }
        rest = behind;
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variable: &str) -> Option<String> {
        [("HOST", "db"), ("EMPTY", ""), ("NESTED", "${HOST}")]
            .iter()
            .find(|(known, _)| *known == variable)
            .map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn variables_are_filled_in_once() {
        for (text, filled) in [
            ("plain", "plain"),
            ("redis://${HOST}:${PORT:-6379}/0", "redis://db:6379/0"),
            ("${EMPTY:-x}${EMPTY}", "x"),
            ("${NESTED}", "${HOST}"),
            ("${GONE:-}", ""),
            ("a$b}{", "a$b}{"),
        ] {
            assert_eq!(fill(text, &environment).unwrap(), filled);
        }
        assert!(fill("${GONE}", &environment).unwrap_err().contains("GONE is not set"));
        assert!(fill("${HOST", &environment).unwrap_err().contains("no }"));
    }

    #[test]
    fn both_languages_say_the_same() {
        let toml = Value::of_toml("a = 1\nb = [\"x\", \"y\"]\n[c]\nd = true\n").unwrap();
        let yaml = Value::of_yaml("a: 1\nb: [x, \"y\"]\nc: !<org.example.Tagged>\n  d: true\n").unwrap();
        assert_eq!(toml, yaml);
    }

    #[test]
    fn what_is_not_understood_is_told_with_its_line_and_without_its_value() {
        for (found, says) in [
            (Value::of_toml("\nstore = redis://me:secret@h"), "line 2 is not TOML"),
            (Value::of_yaml("a: 1\n  b: [secret"), "line 2 is not YAML"),
            (Value::of_yaml("a: 1\n---\nb: 2"), "several documents"),
        ] {
            let message = found.unwrap_err();
            assert!(message.contains(says) && !message.contains('\n') && !message.contains("secret"), "{message}");
        }
    }

    #[test]
    fn passwords_are_noticed() {
        for (text, has) in [
            ("a = \"redis://me:secret@h/0\"", true),
            ("a = \"redlock:redis://a,redis://:secret@h\"", true),
            ("a = \"redis://me@h:6379\"", false),
            ("a = \"redis://me:${PASSWORD}@h\"", false),
            ("a = \"sqlite:/a:b@c\"", false),
            ("[redis]\nsentinel_password = \"x\"", true),
            ("[redis]\npassword = \"${X}\"", false),
        ] {
            assert_eq!(Value::of_toml(text).unwrap().holds_password(), has, "{text}");
        }
    }
}
