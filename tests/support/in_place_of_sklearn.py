"""A pytest plugin: `sklearn.manifold` has the class and the function of `lle` instead of its own."""

import sklearn.manifold

import lle

sklearn.manifold.LocallyLinearEmbedding = lle.LocallyLinearEmbedding
sklearn.manifold.locally_linear_embedding = lle.locally_linear_embedding
