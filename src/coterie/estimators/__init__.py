"""scikit-learn estimators: a model of its own for every group of rows (extra `sklearn`)."""

from coterie.core.errors import InvalidInput

try:
    import sklearn  # noqa: F401
except ImportError:
    raise InvalidInput(
        "the estimators need the package scikit-learn: pip install 'coterie[sklearn]'."
    ) from None

from coterie.estimators.personal import PersonalClassifier, PersonalRegressor

__all__ = ["PersonalClassifier", "PersonalRegressor"]
