//! Prompts as text or tokens, one or several: the `prompt` of completions and the `input` of embeddings.

use crate::json::{Json, Wrong};
use crate::messages::{Prompt, PromptInput, TokenIds};
use crate::sampling::token_ids;

/// A string, strings, token ids, or lists of token ids; at most `count_max` of them.
pub(crate) fn prompts(value: Json<'_>, count_max: usize) -> Result<Vec<Prompt>, Wrong> {
    if value.is_text() {
        return Ok(vec![of_text(value)?]);
    }
    if !value.is_array() {
        return Err(value.not("a string, an array of strings, or token ids"));
    }
    let items = value.items()?;
    let prompts = match items.first() {
        None => return Err(Wrong::new("is empty; send one prompt at least")),
        Some(first) if first.is_text() => value.each(of_text)?,
        Some(first) if first.is_array() => value.each(of_tokens)?,
        Some(_) => vec![of_tokens(value)?],
    };
    if prompts.len() > count_max {
        let what = format!("has {} prompts; allowed: {count_max}", prompts.len());
        return Err(Wrong::new(what));
    }
    Ok(prompts)
}

fn of_text(value: Json<'_>) -> Result<Prompt, Wrong> {
    Ok(Prompt { prompt: Some(PromptInput::Text(value.text()?)) })
}

fn of_tokens(value: Json<'_>) -> Result<Prompt, Wrong> {
    let ids = token_ids(value)?;
    if ids.is_empty() {
        return Err(Wrong::new("is empty; send one token at least"));
    }
    Ok(Prompt { prompt: Some(PromptInput::TokenIds(TokenIds { ids })) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errors::ApiError;

    #[test]
    fn a_prompt_is_text_or_tokens_one_or_several() {
        let text = |text: &str| Prompt { prompt: Some(PromptInput::Text(text.into())) };
        let tokens = |ids: &[u32]| {
            let ids = TokenIds { ids: ids.into() };
            Prompt { prompt: Some(PromptInput::TokenIds(ids)) }
        };
        for (json, expected) in [
            (r#""a""#, vec![text("a")]),
            (r#""""#, vec![text("")]),
            (r#"["a","b"]"#, vec![text("a"), text("b")]),
            ("[1,2]", vec![tokens(&[1, 2])]),
            ("[[1],[2,3]]", vec![tokens(&[1]), tokens(&[2, 3])]),
        ] {
            let actual = prompts(Json::body(json.as_bytes()).unwrap(), 2).unwrap();
            assert_eq!(expected, actual, "{json}");
        }
    }

    #[test]
    fn what_is_no_prompt_is_told_where_it_is() {
        for (json, expected) in [
            ("7", "has to be a string, an array of strings, or token ids, not 7"),
            ("[]", "is empty; send one prompt at least"),
            ("[[]]", "[0]: is empty; send one token at least"),
            (r#"["a",1]"#, "[1]: has to be a string, not 1"),
            (r#"[1,"a"]"#, "[1]: has to be an integer, not a string"),
            ("[[1],[-1]]", "[1][0]: is -1; allowed: 0 to 4294967295"),
            (r#"["a","b","c"]"#, "has 3 prompts; allowed: 2"),
        ] {
            let wrong = prompts(Json::body(json.as_bytes()).unwrap(), 2).unwrap_err();
            assert_eq!(expected, ApiError::from(wrong).message, "{json}");
        }
    }
}
