"""The use of a dataset's allowance: a chart over time, and tables by person, mechanism and month."""

from flask import Blueprint, render_template
from flask_login import login_required

from accountant.queries import datasets, spending
from web.api.parsing import read_choice
from web.auth import current_actor
from web.context import engine

pages = Blueprint("spending", __name__)


@pages.get("/datasets/<name>/spending")
@login_required
def show(name: str) -> str:
    """Left over time and spent by whom; the measure that bars show stands in the address."""
    actor = current_actor()
    figures = spending.figures(engine(), name, actor).document()
    measure = read_choice("measure", tuple(each["name"] for each in figures["measures"]))
    dataset = datasets.dataset(engine(), name, actor).document()
    best = dataset["account"] and dataset["account"]["best_filter"]
    return render_template("spending.html", dataset=dataset, figures=figures, measure=measure or best)
