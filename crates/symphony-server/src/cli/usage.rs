//! What was asked, or one line that says why it cannot be understood.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{Error, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory as _, FromArgMatches as _};

use super::Cli;
use crate::output::{self, Failure};

/// Lines of help are read more easily when they are not as long as a wide terminal.
const HELP_COLUMNS_MAX: usize = 100;
/// What a shell expects of a program that was called wrongly.
const USAGE_EXIT_CODE: u8 = 2;
/// The page that explains it.
const CODE: &str = "SYM08";

impl Cli {
    /// What can be asked, with help as wide as the terminal.
    pub fn definition() -> Command {
        Self::command().term_width(output::width().min(HELP_COLUMNS_MAX))
    }

    /// What was asked; else how to end: help was printed, or the mistake was named.
    pub fn from_arguments(arguments: &[OsString]) -> Result<Self, ExitCode> {
        let mut definition = Self::definition();
        let parsed = definition.try_get_matches_from_mut(arguments).and_then(|mut matches| {
            let chosen = chosen_database(&matches).map_err(|why| {
                Error::raw(ErrorKind::ArgumentConflict, why).format(&mut definition)
            })?;
            let mut cli = Self::from_arg_matches_mut(&mut matches)?;
            match chosen {
                ChosenDatabase::Private => cli.global.database_url = None,
                ChosenDatabase::Named => cli.global.private = false,
            }
            Ok(cli)
        });
        parsed.map_err(|error| {
            if !error.use_stderr() {
                // A reader that went away is no failure.
                drop(error.print());
                return ExitCode::SUCCESS;
            }
            let words = arguments.iter().skip(1).map(|word| word.to_string_lossy());
            let words: Vec<String> =
                words.map(std::borrow::Cow::into_owned).take_while(|word| word != "--").collect();
            let is_json = words.iter().any(|word| word == "--json");
            if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand && !is_json {
                drop(error.print());
            } else {
                let (name, usage) = asked_for(&mut definition, &words);
                let failure = failure(&error, &name);
                failure.report(is_json);
                if !is_json {
                    output::note_plainly("usage:    ", &usage);
                }
            }
            ExitCode::from(USAGE_EXIT_CODE)
        })
    }
}

/// Where the options and the environment lead.
#[derive(Debug, PartialEq, Eq)]
enum ChosenDatabase {
    Private,
    Named,
}

/// What is typed wins over the environment; two of one kind contradict each other, and nobody guesses where money is.
fn chosen_database(matches: &ArgMatches) -> Result<ChosenDatabase, &'static str> {
    let private = matches.get_flag("private").then(|| matches.value_source("private")).flatten();
    chosen(private, matches.value_source("database_url"))
}

fn chosen(
    private: Option<ValueSource>,
    url: Option<ValueSource>,
) -> Result<ChosenDatabase, &'static str> {
    let typed = Some(ValueSource::CommandLine);
    match (private, url) {
        (None, _) => Ok(ChosenDatabase::Named),
        (Some(_), None) => Ok(ChosenDatabase::Private),
        (private, url) if private == typed && url == typed => {
            Err("--private and --database-url name two databases: leave out one")
        }
        (private, _) if private == typed => Ok(ChosenDatabase::Private),
        (_, url) if url == typed => Ok(ChosenDatabase::Named),
        _ => Err(
            "the environment names two databases, DATABASE_URL and SYMPHONY_PRIVATE: unset one, or type --private or \
             --database-url URL",
        ),
    }
}

/// The command that was meant, and how it is used: as it is defined, and not as clap guesses from what was given.
fn asked_for(definition: &mut Command, words: &[String]) -> (String, String) {
    definition.build();
    let mut command = definition.clone();
    for word in words {
        if let Some(found) = command.find_subcommand(word).cloned() {
            command = found;
        }
    }
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").split_whitespace().collect::<Vec<_>>().join(" ");
    (command.get_bin_name().unwrap_or("symphony").to_owned(), usage)
}

/// In one line: what is wrong, and where to read more.
fn failure(error: &Error, command: &str) -> Failure {
    let told = error.render().to_string();
    let paragraphs: Vec<String> = told
        .trim_start_matches("error: ")
        .split("\n\n")
        .map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let is_end = |paragraph: &&String| {
        !paragraph.starts_with("Usage:") && !paragraph.starts_with("For more information")
    };
    let (tips, message): (Vec<&String>, Vec<&String>) =
        paragraphs.iter().filter(is_end).partition(|paragraph| paragraph.starts_with("tip:"));
    let mut message: Vec<String> = message.into_iter().cloned().collect();
    // Of values the possible ones are listed. The one that is spelt alike may mean the opposite, as `failed` of `paid`.
    if error.kind() != ErrorKind::InvalidValue {
        message.extend(tips.iter().map(|tip| tip.trim_start_matches("tip: ").to_owned()));
    }
    if matches!(
        error.kind(),
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        message = vec!["a command is missing".to_owned()];
    }
    Failure::new(message.join("; ")).with_code(CODE).with_fix(&format!("{command} --help"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn said(line: &str) -> (String, String) {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let mut definition = Cli::command();
        let error = definition.try_get_matches_from_mut(&words).unwrap_err();
        let (name, usage) = asked_for(&mut definition, words.get(1..).unwrap_or_default());
        (failure(&error, &name).to_string(), usage)
    }

    #[test]
    fn a_mistake_is_one_line_and_names_the_command_that_was_meant() {
        let (message, usage) = said("symphony park inv-1");
        assert_eq!(
            message,
            "the following required arguments were not provided: --reason <REASON>"
        );
        assert_eq!(usage, "symphony park [OPTIONS] --reason <REASON> <ID>");
        let (message, _) = said("symphony park inv-1 --reson x");
        assert_eq!(
            message,
            "unexpected argument '--reson' found; a similar argument exists: '--reason'"
        );
        let (message, _) = said("symphony prak inv-1");
        assert_eq!(message, "unrecognized subcommand 'prak'; a similar subcommand exists: 'park'");
    }

    #[test]
    fn a_value_that_means_the_opposite_is_not_suggested() {
        let (message, _) = said("symphony resolve inv-1 --as paid --reason x");
        assert_eq!(
            message,
            "--as paid: did you mean --as dispatched? dispatched: the money moved; failed: it did not and shall not; retry: it \
             did not and shall be sent"
        );
    }

    #[test]
    fn what_is_typed_wins_over_the_environment_and_two_of_one_kind_contradict_each_other() {
        let (typed, variable) = (ValueSource::CommandLine, ValueSource::EnvVariable);
        for (private, url, expected) in [
            (None, None, Ok(ChosenDatabase::Named)),
            (None, Some(variable), Ok(ChosenDatabase::Named)),
            (Some(typed), None, Ok(ChosenDatabase::Private)),
            (Some(variable), None, Ok(ChosenDatabase::Private)),
            (Some(typed), Some(variable), Ok(ChosenDatabase::Private)),
            (Some(variable), Some(typed), Ok(ChosenDatabase::Named)),
            (Some(typed), Some(typed), Err("--private and")),
            (Some(variable), Some(variable), Err("the environment names")),
        ] {
            match (chosen(private, url), expected) {
                (Err(why), Err(begins)) => assert!(why.starts_with(begins), "{why}"),
                (found, expected) => {
                    assert_eq!(found, expected.map_err(|_| ""), "{private:?} {url:?}");
                }
            }
        }
    }

    #[test]
    fn no_usage_shows_the_database_as_required() {
        let words = ["symphony", "show", "--database-url", "postgres://x/y"];
        let mut definition = Cli::command();
        let error = definition.try_get_matches_from_mut(words).unwrap_err();
        let words: Vec<String> = words.iter().skip(1).map(|word| (*word).to_owned()).collect();
        let (name, usage) = asked_for(&mut definition, &words);
        assert_eq!(
            (name.as_str(), usage.as_str()),
            ("symphony show", "symphony show [OPTIONS] <ID>")
        );
        assert!(!failure(&error, &name).to_string().contains("database-url"));
    }
}
