//! The models of engines for language models, by the names that clients use.

use std::collections::HashMap;

use router_protocol::mesh::view::EngineModel;

/// What an engine offers through the HTTP APIs for language models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LlmRoute {
    /// The APIs are served below it; in the form of `http_prefixes`.
    pub prefix: String,
    /// At least one.
    pub models: Vec<EngineModel>,
}

/// The models behind one prefix, each with the deployment that has it.
#[derive(Debug)]
pub struct Models<D> {
    /// All engines behind a prefix are of one application.
    application: Box<str>,
    served: Vec<Served<D>>,
    /// Ids and aliases, and those with an adapter that is always there, as places in `served`.
    by_name: HashMap<Box<str>, Name>,
}

/// A model and the deployment that has it.
#[derive(Debug)]
pub struct Served<D> {
    pub deployment: D,
    pub model: EngineModel,
}

#[derive(Debug)]
struct Name {
    place: usize,
    adapter: Option<Box<str>>,
}

/// The model that a request is for.
#[derive(Debug, PartialEq, Eq)]
pub struct Chosen<'a> {
    /// Place among [`Models::served`].
    pub place: usize,
    pub adapter: Option<&'a str>,
}

/// Why no model was found for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoModel {
    /// The request names no model, and there are several.
    Unnamed,
    Unknown,
}

// === impl Models ===

impl<D: Clone> Models<D> {
    pub(super) fn of(application: &str) -> Self {
        let (served, by_name) = Default::default();
        Self { application: application.into(), served, by_name }
    }

    /// Adds the models of a deployment. Names that other models have already stay theirs.
    pub(super) fn add(&mut self, deployment: &D, models: Vec<EngineModel>) {
        for model in models {
            let place = self.served.len();
            for name in std::iter::once(&model.id).chain(&model.aliases) {
                self.name(name.as_str().into(), Name { place, adapter: None });
                for adapter in &model.adapters {
                    let with = format!("{name}:{adapter}");
                    self.name(with.into(), Name { place, adapter: Some(adapter.as_str().into()) });
                }
            }
            self.served.push(Served { deployment: deployment.clone(), model });
        }
    }

    fn name(&mut self, name: Box<str>, meaning: Name) {
        self.by_name.entry(name).or_insert(meaning);
    }

    pub fn application(&self) -> &str {
        &self.application
    }

    /// All of them; a name that two of them have belongs to the first.
    pub fn served(&self) -> &[Served<D>] {
        &self.served
    }

    /// Whether a client that names the model gets this one.
    pub fn is_reached(&self, place: usize) -> bool {
        let id = self.served[place].model.id.as_str();
        self.by_name.get(id).is_some_and(|name| name.place == place)
    }

    /// The model that a client means by a name: an id or an alias, maybe with `:` and an adapter.
    ///
    /// Names may contain colons: a name without an adapter is preferred, then the longest name of a
    /// model.
    ///
    /// # Errors
    /// No model has the name, or the name is missing and there are several models.
    pub fn find<'a>(&'a self, asked: Option<&'a str>) -> Result<Chosen<'a>, NoModel> {
        let Some(asked) = asked.filter(|asked| !asked.is_empty()) else {
            return self.only().ok_or(NoModel::Unnamed);
        };
        if let Some(Name { place, adapter }) = self.by_name.get(asked) {
            return Ok(Chosen { place: *place, adapter: adapter.as_deref() });
        }
        let with_adapter = |(at, _): (usize, &str)| {
            let Name { place, adapter: None } = self.by_name.get(&asked[..at])? else {
                return None;
            };
            let adapter = &asked[at + 1..];
            let is_taken = self.served[*place].model.takes_adapters && !adapter.is_empty();
            is_taken.then_some(Chosen { place: *place, adapter: Some(adapter) })
        };
        asked.rmatch_indices(':').find_map(with_adapter).ok_or(NoModel::Unknown)
    }

    fn only(&self) -> Option<Chosen<'_>> {
        let mut reached = (0..self.served.len()).filter(|place| self.is_reached(*place));
        let place = reached.next()?;
        reached.next().is_none().then_some(Chosen { place, adapter: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(id: &str, aliases: &[&str], adapters: &[&str]) -> EngineModel {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        EngineModel {
            id: id.to_owned(),
            aliases: owned(aliases),
            adapters: owned(adapters),
            ..EngineModel::default()
        }
    }

    /// Deployment, id and adapter.
    fn found<'a>(
        models: &'a Models<&'static str>,
        asked: &'a str,
    ) -> Option<(&'static str, &'a str, &'a str)> {
        let Chosen { place, adapter } = models.find(Some(asked)).ok()?;
        let Served { deployment, model } = &models.served()[place];
        Some((*deployment, &model.id, adapter.unwrap_or_default()))
    }

    #[test]
    fn a_model_is_found_by_any_of_its_names() {
        let takes = EngineModel { takes_adapters: true, ..model("llama:8b", &["small"], &["sql"]) };
        let mut models = Models::of("chat");
        models.add(&"A", vec![takes, model("llama", &[], &["fixed"])]);
        models.add(&"B", vec![model("embed", &["small"], &[])]);
        for (asked, expected) in [
            ("llama:8b", Some(("A", "llama:8b", ""))),
            ("small", Some(("A", "llama:8b", ""))),
            ("small:poems", Some(("A", "llama:8b", "poems"))),
            ("llama:8b:a:b", Some(("A", "llama:8b", "a:b"))),
            ("llama:8b:sql", Some(("A", "llama:8b", "sql"))),
            ("llama:8b:", None),
            ("llama", Some(("A", "llama", ""))),
            ("llama:fixed", Some(("A", "llama", "fixed"))),
            ("llama:other", None),
            ("embed", Some(("B", "embed", ""))),
            ("embed:x", None),
            ("Llama", None),
            (":", None),
        ] {
            assert_eq!(expected, found(&models, asked), "{asked}");
        }
        assert_eq!(Err(NoModel::Unnamed), models.find(None));
        assert_eq!(Err(NoModel::Unnamed), models.find(Some("")));
        assert_eq!(Err(NoModel::Unknown), models.find(Some("gpt")));
    }

    #[test]
    fn a_request_without_a_name_is_for_the_only_model() {
        let mut models = Models::of("chat");
        models.add(&"A", vec![model("a", &["b"], &["c"])]);
        models.add(&"B", vec![model("a", &[], &[])]);
        assert_eq!(Ok(Chosen { place: 0, adapter: None }), models.find(None));
        assert!(models.is_reached(0) && !models.is_reached(1));
    }
}
