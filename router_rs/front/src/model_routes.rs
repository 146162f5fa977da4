//! Finds the deployment that has the model of a request, and describes the models behind a path.

use http::{HeaderValue, StatusCode, request};
use router_dispatch::{Chosen, NoModel, Served, Snapshot, Way};
use router_llm::{
    ApiError, Door, Found, ModelCard, Output, answer_model, answer_models, model_name, short_list,
};

use crate::access::Asker;
use crate::models::{Models, at};
use crate::upstream::{GrpcRoute, NOTHING_YET, RouteLookup, Upstream};

/// The owner of a model that does not name one.
const OWNER_DEFAULT: &str = "pyserve";

/// Where the request for a model goes.
#[derive(Debug)]
pub(super) struct ModelRoute {
    pub route: GrpcRoute,
    /// The name in the answer.
    pub asked: String,
    /// The name at the engine, with the adapter.
    pub model: String,
    /// The same, if there is an adapter: replicas that have it are preferred.
    pub adapted: Option<HeaderValue>,
}

impl RouteLookup {
    /// The API at the path of a request that its caller may see.
    pub(super) fn llm(&self, parts: &request::Parts) -> Option<Found> {
        let Self::Table(reader) = self else { return None };
        reader.with(|table| at(table, parts).map(|(found, _)| found))
    }

    /// Hands the models behind the path of a request to `look`, with the path below their prefix.
    ///
    /// # Errors
    /// The table has changed since the path was looked up.
    pub(super) fn with_models<T>(
        &self,
        parts: &request::Parts,
        asker: &Asker<'_>,
        look: impl FnOnce(&Snapshot, &Models, &str) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let gone = || ApiError::new(StatusCode::SERVICE_UNAVAILABLE, NOTHING_YET);
        let Self::Table(reader) = self else { return Err(gone()) };
        let path = parts.uri.path();
        reader.with(|table| {
            let (below, models) = table.find_models(path).ok_or_else(gone)?;
            if !asker.may_reach(path, Some(models.application())) {
                return Err(ApiError::of(&asker.refuse(path)));
            }
            look(table, models, below)
        })
    }

    /// Writes the list of models, or the one that the path names.
    ///
    /// # Errors
    /// As [`RouteLookup::with_models`].
    pub(super) fn models(
        &self,
        parts: &request::Parts,
        asker: &Asker<'_>,
        output: &mut Output,
    ) -> Result<(), ApiError> {
        self.with_models(parts, asker, |_, models, below| {
            let Some(name) = model_name(below) else {
                answer_models(&cards(models), output);
                return Ok(());
            };
            match models.find(Some(&name)) {
                Ok(Chosen { place, adapter }) => {
                    let card = card(&models.served()[place], adapter);
                    answer_model(std::slice::from_ref(&card), &card.id, output);
                }
                Err(_) => answer_model(&cards(models), &name, output),
            }
            Ok(())
        })
    }

    /// Finds the deployment that has the model which a request names.
    ///
    /// # Errors
    /// 404 for an unknown model, 400 if one of several has to be named.
    pub(super) fn model(
        &self,
        parts: &request::Parts,
        asker: &Asker<'_>,
        door: Door,
        asked: Option<&str>,
    ) -> Result<ModelRoute, ApiError> {
        self.with_models(parts, asker, |table, models, _| {
            let Chosen { place, adapter } =
                models.find(asked).map_err(|reason| no_model(models, door, asked, reason))?;
            let Served { deployment, model } = &models.served()[place];
            let name = match adapter {
                Some(adapter) => format!("{}:{adapter}", model.id),
                None => model.id.clone(),
            };
            let unusable = |_| no_model(models, door, asked, NoModel::Unknown);
            let adapted = adapter.map(|_| HeaderValue::from_str(&name)).transpose();
            // A copy of a stream of tokens would cost as much as the stream, and nobody reads it.
            let Way { deployment, share, .. } = table.way(deployment, &parts.headers);
            Ok(ModelRoute {
                route: GrpcRoute {
                    upstream: Upstream::Deployment(deployment),
                    mirror: None,
                    share,
                },
                asked: asked.filter(|asked| !asked.is_empty()).unwrap_or(&name).to_owned(),
                adapted: adapted.map_err(unusable)?,
                model: name,
            })
        })
    }
}

fn no_model(models: &Models, door: Door, asked: Option<&str>, reason: NoModel) -> ApiError {
    let known = names(models);
    match reason {
        NoModel::Unknown => door.unknown_model(asked.unwrap_or_default(), known),
        NoModel::Unnamed => {
            ApiError::invalid("model", format!("is missing; name one of {}", short_list(known)))
        }
    }
}

/// The models that clients reach by their ids.
fn names(models: &Models) -> impl Iterator<Item = &str> {
    let reached = models.served().iter().enumerate();
    reached.filter(|(place, _)| models.is_reached(*place)).map(|(_, served)| &*served.model.id)
}

fn cards(models: &Models) -> Vec<ModelCard> {
    let reached = models.served().iter().enumerate();
    let reached = reached.filter(|(place, _)| models.is_reached(*place));
    let of = |(_, served): (usize, &Served<_>)| {
        let adapted = served.model.adapters.iter().map(|name| card(served, Some(name)));
        std::iter::once(card(served, None)).chain(adapted).collect::<Vec<_>>()
    };
    reached.flat_map(of).collect()
}

fn card<D>(served: &Served<D>, adapter: Option<&str>) -> ModelCard {
    let model = &served.model;
    let or = |text: &str, default: &str| if text.is_empty() { default } else { text }.to_owned();
    ModelCard {
        id: adapter.map_or_else(|| model.id.clone(), |name| format!("{}:{name}", model.id)),
        root: or(&model.root, &model.id),
        owned_by: or(&model.owned_by, OWNER_DEFAULT),
        created: u64::try_from(model.created).unwrap_or_default(),
        max_model_len: model.max_model_len,
        parent: adapter.map(|_| model.id.clone()),
    }
}
